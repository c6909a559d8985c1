; The kernels of the conformance suite (KERNELS in driver.py says what each does) for devices that take LLVM IR.

declare i32 @hcq.group_id(i32)
declare i32 @hcq.num_groups(i32)
declare i32 @hcq.local_id(i32)
declare i32 @hcq.local_size(i32)
declare void @hcq.barrier()

@shared = internal addrspace(3) global [256 x i32] undef

define void @fill(ptr %out, i32 %n, i32 %value) {
entry:
  %some = icmp sgt i32 %n, 0
  br i1 %some, label %body, label %end
body:
  %i = phi i32 [ 0, %entry ], [ %next, %body ]
  %out_i = getelementptr i32, ptr %out, i32 %i
  store i32 %value, ptr %out_i
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %body, label %end
end:
  ret void
}

define void @iota(ptr %out, i32 %n, i32 %start) {
entry:
  %some = icmp sgt i32 %n, 0
  br i1 %some, label %body, label %end
body:
  %i = phi i32 [ 0, %entry ], [ %next, %body ]
  %out_i = getelementptr i32, ptr %out, i32 %i
  %v = add i32 %start, %i
  store i32 %v, ptr %out_i
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %body, label %end
end:
  ret void
}

define void @add(ptr %out, ptr %a, ptr %b, i32 %n) {
entry:
  %some = icmp sgt i32 %n, 0
  br i1 %some, label %body, label %end
body:
  %i = phi i32 [ 0, %entry ], [ %next, %body ]
  %out_i = getelementptr i32, ptr %out, i32 %i
  %a_i = getelementptr i32, ptr %a, i32 %i
  %b_i = getelementptr i32, ptr %b, i32 %i
  %x = load i32, ptr %a_i
  %y = load i32, ptr %b_i
  %v = add i32 %x, %y
  store i32 %v, ptr %out_i
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %body, label %end
end:
  ret void
}

define void @increment(ptr %out) {
  %old = load i32, ptr %out
  %new = add i32 %old, 1
  store i32 %new, ptr %out
  ret void
}

define void @append(ptr %log, i32 %value) {
  %old = load i32, ptr %log
  %count = add i32 %old, 1
  store i32 %count, ptr %log
  %slot = getelementptr i32, ptr %log, i32 %count
  store i32 %value, ptr %slot
  ret void
}

; A store and a load of the same word take some 2 ns, on any machine.
define void @spin(ptr %out, i32 %n) {
entry:
  %left = alloca i32
  %half = sdiv i32 %n, 2
  store volatile i32 %half, ptr %left
  br label %head
head:
  %now = load volatile i32, ptr %left
  %more = icmp sgt i32 %now, 0
  br i1 %more, label %body, label %end
body:
  %less = sub i32 %now, 1
  store volatile i32 %less, ptr %left
  br label %head
end:
  store i32 %n, ptr %out
  ret void
}

define void @nothing() {
  ret void
}

define void @values(ptr %out, i8 signext %a, i16 signext %b, i32 %c, i64 signext %d, float %e, double %f) {
  %out1 = getelementptr i64, ptr %out, i32 1
  %out2 = getelementptr i64, ptr %out, i32 2
  %out3 = getelementptr i64, ptr %out, i32 3
  %out4 = getelementptr i64, ptr %out, i32 4
  %out5 = getelementptr i64, ptr %out, i32 5
  %wide_a = sext i8 %a to i64
  %wide_b = sext i16 %b to i64
  %wide_c = sext i32 %c to i64
  %wide_e = fpext float %e to double
  store i64 %wide_a, ptr %out
  store i64 %wide_b, ptr %out1
  store i64 %wide_c, ptr %out2
  store i64 %d, ptr %out3
  store double %wide_e, ptr %out4
  store double %f, ptr %out5
  ret void
}

define void @raw(ptr %out, i32 %a) {
  store i32 %a, ptr %out
  ret void
}

define void @sixty_four(ptr %b0, ptr %b1, ptr %b2, ptr %b3, ptr %b4, ptr %b5, ptr %b6, ptr %b7, ptr %b8, ptr %b9, ptr %b10, ptr %b11, ptr %b12, ptr %b13, ptr %b14, ptr %b15, ptr %b16, ptr %b17, ptr %b18, ptr %b19, ptr %b20, ptr %b21, ptr %b22, ptr %b23, ptr %b24, ptr %b25, ptr %b26, ptr %b27, ptr %b28, ptr %b29, ptr %b30, ptr %b31, i32 %v0, i32 %v1, i32 %v2, i32 %v3, i32 %v4, i32 %v5, i32 %v6, i32 %v7, i32 %v8, i32 %v9, i32 %v10, i32 %v11, i32 %v12, i32 %v13, i32 %v14, i32 %v15, i32 %v16, i32 %v17, i32 %v18, i32 %v19, i32 %v20, i32 %v21, i32 %v22, i32 %v23, i32 %v24, i32 %v25, i32 %v26, i32 %v27, i32 %v28, i32 %v29, i32 %v30, i32 %v31) {
  %s0 = add i32 0, %v0
  %s1 = add i32 %s0, %v1
  %s2 = add i32 %s1, %v2
  %s3 = add i32 %s2, %v3
  %s4 = add i32 %s3, %v4
  %s5 = add i32 %s4, %v5
  %s6 = add i32 %s5, %v6
  %s7 = add i32 %s6, %v7
  %s8 = add i32 %s7, %v8
  %s9 = add i32 %s8, %v9
  %s10 = add i32 %s9, %v10
  %s11 = add i32 %s10, %v11
  %s12 = add i32 %s11, %v12
  %s13 = add i32 %s12, %v13
  %s14 = add i32 %s13, %v14
  %s15 = add i32 %s14, %v15
  %s16 = add i32 %s15, %v16
  %s17 = add i32 %s16, %v17
  %s18 = add i32 %s17, %v18
  %s19 = add i32 %s18, %v19
  %s20 = add i32 %s19, %v20
  %s21 = add i32 %s20, %v21
  %s22 = add i32 %s21, %v22
  %s23 = add i32 %s22, %v23
  %s24 = add i32 %s23, %v24
  %s25 = add i32 %s24, %v25
  %s26 = add i32 %s25, %v26
  %s27 = add i32 %s26, %v27
  %s28 = add i32 %s27, %v28
  %s29 = add i32 %s28, %v29
  %s30 = add i32 %s29, %v30
  %s31 = add i32 %s30, %v31
  %l1 = load i32, ptr %b1
  %t1 = add i32 %s31, %l1
  %l2 = load i32, ptr %b2
  %t2 = add i32 %t1, %l2
  %l3 = load i32, ptr %b3
  %t3 = add i32 %t2, %l3
  %l4 = load i32, ptr %b4
  %t4 = add i32 %t3, %l4
  %l5 = load i32, ptr %b5
  %t5 = add i32 %t4, %l5
  %l6 = load i32, ptr %b6
  %t6 = add i32 %t5, %l6
  %l7 = load i32, ptr %b7
  %t7 = add i32 %t6, %l7
  %l8 = load i32, ptr %b8
  %t8 = add i32 %t7, %l8
  %l9 = load i32, ptr %b9
  %t9 = add i32 %t8, %l9
  %l10 = load i32, ptr %b10
  %t10 = add i32 %t9, %l10
  %l11 = load i32, ptr %b11
  %t11 = add i32 %t10, %l11
  %l12 = load i32, ptr %b12
  %t12 = add i32 %t11, %l12
  %l13 = load i32, ptr %b13
  %t13 = add i32 %t12, %l13
  %l14 = load i32, ptr %b14
  %t14 = add i32 %t13, %l14
  %l15 = load i32, ptr %b15
  %t15 = add i32 %t14, %l15
  %l16 = load i32, ptr %b16
  %t16 = add i32 %t15, %l16
  %l17 = load i32, ptr %b17
  %t17 = add i32 %t16, %l17
  %l18 = load i32, ptr %b18
  %t18 = add i32 %t17, %l18
  %l19 = load i32, ptr %b19
  %t19 = add i32 %t18, %l19
  %l20 = load i32, ptr %b20
  %t20 = add i32 %t19, %l20
  %l21 = load i32, ptr %b21
  %t21 = add i32 %t20, %l21
  %l22 = load i32, ptr %b22
  %t22 = add i32 %t21, %l22
  %l23 = load i32, ptr %b23
  %t23 = add i32 %t22, %l23
  %l24 = load i32, ptr %b24
  %t24 = add i32 %t23, %l24
  %l25 = load i32, ptr %b25
  %t25 = add i32 %t24, %l25
  %l26 = load i32, ptr %b26
  %t26 = add i32 %t25, %l26
  %l27 = load i32, ptr %b27
  %t27 = add i32 %t26, %l27
  %l28 = load i32, ptr %b28
  %t28 = add i32 %t27, %l28
  %l29 = load i32, ptr %b29
  %t29 = add i32 %t28, %l29
  %l30 = load i32, ptr %b30
  %t30 = add i32 %t29, %l30
  %l31 = load i32, ptr %b31
  %t31 = add i32 %t30, %l31
  store i32 %t31, ptr %b0
  ret void
}

define void @grid(ptr %out) {
  %group_id0 = call i32 @hcq.group_id(i32 0)
  %group_id1 = call i32 @hcq.group_id(i32 1)
  %group_id2 = call i32 @hcq.group_id(i32 2)
  %group_size0 = call i32 @hcq.num_groups(i32 0)
  %group_size1 = call i32 @hcq.num_groups(i32 1)
  %group_size2 = call i32 @hcq.num_groups(i32 2)
  %group_a = mul i32 %group_id2, %group_size1
  %group_b = add i32 %group_a, %group_id1
  %group_c = mul i32 %group_b, %group_size0
  %group = add i32 %group_c, %group_id0
  %item_id0 = call i32 @hcq.local_id(i32 0)
  %item_id1 = call i32 @hcq.local_id(i32 1)
  %item_id2 = call i32 @hcq.local_id(i32 2)
  %item_size0 = call i32 @hcq.local_size(i32 0)
  %item_size1 = call i32 @hcq.local_size(i32 1)
  %item_size2 = call i32 @hcq.local_size(i32 2)
  %item_a = mul i32 %item_id2, %item_size1
  %item_b = add i32 %item_a, %item_id1
  %item_c = mul i32 %item_b, %item_size0
  %item = add i32 %item_c, %item_id0
  %plane = mul i32 %item_size0, %item_size1
  %items = mul i32 %plane, %item_size2
  %before = mul i32 %group, %items
  %index = add i32 %before, %item
  %thousands = mul i32 %group, 1000
  %both = add i32 %thousands, %item
  %mine = add i32 %both, 1
  %slot = getelementptr i32, ptr %out, i32 %index
  %old = load i32, ptr %slot
  %new = add i32 %old, %mine
  store i32 %new, ptr %slot
  ret void
}

define void @barrier(ptr %out, i32 %rounds) {
entry:
  %item = call i32 @hcq.local_id(i32 0)
  %items = call i32 @hcq.local_size(i32 0)
  %group = call i32 @hcq.group_id(i32 0)
  %mine = getelementptr [256 x i32], ptr addrspace(3) @shared, i32 0, i32 %item
  %right = add i32 %item, 1
  %neighbour = urem i32 %right, %items
  %theirs = getelementptr [256 x i32], ptr addrspace(3) @shared, i32 0, i32 %neighbour
  br label %head
head:
  %round = phi i32 [ 0, %entry ], [ %next, %body ]
  %sum = phi i32 [ 0, %entry ], [ %more, %body ]
  %go = icmp slt i32 %round, %rounds
  br i1 %go, label %body, label %end
body:
  %value = add i32 %item, %round
  store i32 %value, ptr addrspace(3) %mine
  call void @hcq.barrier()
  %seen = load i32, ptr addrspace(3) %theirs
  %more = add i32 %sum, %seen
  call void @hcq.barrier()
  %next = add i32 %round, 1
  br label %head
end:
  %before = mul i32 %group, %items
  %index = add i32 %before, %item
  %slot = getelementptr i32, ptr %out, i32 %index
  store i32 %sum, ptr %slot
  ret void
}
