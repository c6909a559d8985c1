"""The two forms of a kernel's entry (abi.hpp): a coroutine a thread, and a loop over the block's threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.abi import Block, Grid, Op, Thread
from hcq.cudacpu.lower.forms.contexts import LoopContext
from hcq.cudacpu.ptx.nodes import Function

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

LEAVING = "leaving"  # the label where a thread ends


def coroutine(e: Emitter, name: str, function: Function) -> str:
    """The ramp of a coroutine: `Frame* k(Thread*)`, one a thread."""
    for text in (
        "declare token @llvm.coro.id(i32, ptr, ptr, ptr)",
        "declare i64 @llvm.coro.size.i64()",
        "declare ptr @llvm.coro.begin(token, ptr)",
        "declare void @llvm.coro.end(ptr, i1, token)",
        "declare i8 @llvm.coro.suspend(token, i1)",
        "declare ptr @hcq_cuda_frame(ptr, i64)",
    ):
        e.declare(text)
    e.do("%coro.id = call token @llvm.coro.id(i32 64, ptr null, ptr null, ptr null)")
    e.do("%coro.size = call i64 @llvm.coro.size.i64()")
    e.do("%coro.memory = call ptr @hcq_cuda_frame(ptr %thread, i64 %coro.size)")
    e.do("%coro.frame = call ptr @llvm.coro.begin(token %coro.id, ptr %coro.memory)")
    e.body(function.body or [])
    e.place(LEAVING)
    e.do(f"store i32 {int(Op.exited)}, ptr {e.field(Thread.op)}")
    answer = e.op("call i8 @llvm.coro.suspend(token none, i1 true)")
    e.end(f"switch i8 {answer}, label %coro.suspended [i8 0, label %coro.never i8 1, label %coro.cleanup]")
    e.place("coro.never")
    e.end("unreachable")
    e.place("coro.cleanup")
    e.branch("coro.suspended")
    e.place("coro.suspended")
    e.do("call void @llvm.coro.end(ptr %coro.frame, i1 false, token none)")
    e.end("ret ptr %coro.frame")
    return f"define ptr {name}(ptr %thread) presplitcoroutine #0 {{\n{e.text()}\n}}"


def loop(e: Emitter, name: str, function: Function, param_bytes: int) -> str:
    """`void k(const Block*)`, which calls the thread's body for each thread of the block."""
    group = e.unit.metadata("distinct !{}")
    e.group = group
    e.body(function.body or [])
    e.place(LEAVING)
    e.end("ret void")
    body = f'{name[:-1]}.thread"' if name.endswith('"') else f"{name}.thread"
    parallel = e.unit.metadata(f'!{{!"llvm.loop.parallel_accesses", {group}}}')
    loop = e.unit.metadata(f"distinct !{{%self, {parallel}}}")
    bytes_ = e.unit.metadata(f"!{{i64 {max(param_bytes, 1)}}}")
    text = f"define internal void {body}({LoopContext.ARGUMENTS}) alwaysinline #0 {{\n{e.text()}\n}}\n"
    return text + _LOOP % {
        "name": name, "body": body, "loop": loop, "bytes": bytes_, "align": e.unit.metadata("!{i64 8}"),
        "grid": int(Block.grid), "shared": int(Block.shared),
        "local": int(Block.local), "ntid": int(Grid.ntid), "params": int(Grid.params),
        "local_bytes": int(Grid.local_bytes), "thread": int(Thread.size), "t_local": int(Thread.local),
        "t_tid": int(Thread.tid), "t_linear": int(Thread.linear),
    }  # fmt: skip


_LOOP = """define void %(name)s(ptr %%block) #0 {
entry:
  %%thread = alloca [%(thread)d x i8], align 16
  %%grid.at = getelementptr i8, ptr %%block, i64 %(grid)d
  %%grid = load ptr, ptr %%grid.at, align 8, !invariant.load !0
  %%params.at = getelementptr i8, ptr %%grid, i64 %(params)d
  %%params = load ptr, ptr %%params.at, align 8, !invariant.load !0, !dereferenceable %(bytes)s, !align %(align)s
  %%shared.at = getelementptr i8, ptr %%block, i64 %(shared)d
  %%shared = load ptr, ptr %%shared.at, align 8, !invariant.load !0
  %%local.at = getelementptr i8, ptr %%block, i64 %(local)d
  %%locals = load ptr, ptr %%local.at, align 8, !invariant.load !0
  %%bytes.at = getelementptr i8, ptr %%grid, i64 %(local_bytes)d
  %%bytes = load i32, ptr %%bytes.at, align 4, !invariant.load !0
  %%stride = zext i32 %%bytes to i64
  %%nx.at = getelementptr i8, ptr %%grid, i64 %(ntid)d
  %%nx = load i32, ptr %%nx.at, align 4, !invariant.load !0
  %%ny.at = getelementptr i8, ptr %%nx.at, i64 4
  %%ny = load i32, ptr %%ny.at, align 4, !invariant.load !0
  %%nz.at = getelementptr i8, ptr %%nx.at, i64 8
  %%nz = load i32, ptr %%nz.at, align 4, !invariant.load !0
  %%t.local = getelementptr i8, ptr %%thread, i64 %(t_local)d
  %%t.x = getelementptr i8, ptr %%thread, i64 %(t_tid)d
  %%t.y = getelementptr i8, ptr %%t.x, i64 4
  %%t.z = getelementptr i8, ptr %%t.x, i64 8
  %%t.linear = getelementptr i8, ptr %%thread, i64 %(t_linear)d
  store ptr %%block, ptr %%thread, align 8
  br label %%zs
zs:
  %%z = phi i32 [ 0, %%entry ], [ %%z.next, %%ys.end ]
  %%z.first = mul i32 %%z, %%ny
  br label %%ys
ys:
  %%y = phi i32 [ 0, %%zs ], [ %%y.next, %%xs.end ]
  %%row = add i32 %%z.first, %%y
  %%first = mul i32 %%row, %%nx
  br label %%xs
xs:
  %%x = phi i32 [ 0, %%ys ], [ %%x.next, %%xs ]
  %%linear = add nuw nsw i32 %%first, %%x
  %%number = zext i32 %%linear to i64
  %%offset = mul nuw nsw i64 %%number, %%stride
  %%local = getelementptr i8, ptr %%locals, i64 %%offset
  store ptr %%local, ptr %%t.local, align 8
  store i32 %%x, ptr %%t.x, align 4
  store i32 %%y, ptr %%t.y, align 4
  store i32 %%z, ptr %%t.z, align 4
  store i32 %%linear, ptr %%t.linear, align 4
  call void %(body)s(ptr %%thread, ptr %%block, ptr %%grid, ptr %%params, ptr %%shared, ptr %%local, \
i32 %%linear, i32 %%x, i32 %%y, i32 %%z)
  %%x.next = add nuw nsw i32 %%x, 1
  %%x.more = icmp ult i32 %%x.next, %%nx
  br i1 %%x.more, label %%xs, label %%xs.end, !llvm.loop %(loop)s
xs.end:
  %%y.next = add nuw i32 %%y, 1
  %%y.more = icmp ult i32 %%y.next, %%ny
  br i1 %%y.more, label %%ys, label %%ys.end
ys.end:
  %%z.next = add nuw i32 %%z, 1
  %%z.more = icmp ult i32 %%z.next, %%nz
  br i1 %%z.more, label %%zs, label %%end
end:
  ret void
}"""
