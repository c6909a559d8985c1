// Memory operations of streams: see stream_memory.hpp.
#include "stream/stream_memory.hpp"

#include <atomic>

#include "api/entry.hpp"
#include "device/lacks.hpp"
#include "stream/stream.hpp"

namespace cudacpu {

namespace {

constexpr unsigned most_operations = 255;
constexpr unsigned condition = 3;  // the flags that say what a wait waits for
constexpr unsigned wait_flags = condition | CU_STREAM_WAIT_VALUE_FLUSH;

template <class Word>
Word load(CUdeviceptr address) {
  return __atomic_load_n(reinterpret_cast<const Word*>(address),
                         __ATOMIC_ACQUIRE);  // what follows sees what came before
}

template <class Word>
bool holds(CUdeviceptr address, Word value, unsigned flags) {
  Word word = load<Word>(address);
  switch (flags & condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<Word>>(word - value) >= 0;  // cyclic, as the API has it
    case CU_STREAM_WAIT_VALUE_EQ:
      return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (word & value) != 0;
    default:
      return static_cast<Word>(~(word | value)) != 0;
  }
}

template <class Word>
void write(CUdeviceptr address, Word value) {
  __atomic_store_n(reinterpret_cast<Word*>(address), value, __ATOMIC_RELEASE);  // after all that the stream did
}

template <class Word>
void reduce(const MemOpReduction& op) {
  auto* word = reinterpret_cast<Word*>(op.address);
  auto value = static_cast<Word>(op.value);
  if (op.reductionOp == CU_STREAM_ATOMIC_REDUCTION_OP_OR) {
    __atomic_fetch_or(word, value, __ATOMIC_ACQ_REL);  // after all that the stream did, before what it does next
  } else if (op.reductionOp == CU_STREAM_ATOMIC_REDUCTION_OP_AND) {
    __atomic_fetch_and(word, value, __ATOMIC_ACQ_REL);  // likewise
  } else {
    __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);  // likewise
  }
}

// False: it stands at a wait.
bool perform(const CUstreamBatchMemOpParams& op) {
  const MemOpValue& value = op.value;
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return holds(value.address, static_cast<uint32_t>(value.value), value.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return holds(value.address, value.value, value.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return write(value.address, static_cast<uint32_t>(value.value)), true;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return write(value.address, value.value), true;
    case CU_STREAM_MEM_OP_ATOMIC_REDUCTION:
      if (op.reduction.dataType == CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32) {
        reduce<uint32_t>(op.reduction);
      } else {
        reduce<uint64_t>(op.reduction);
      }
      return true;
    default:  // barriers, and flushes of what others wrote: memory is the host's
      std::atomic_thread_fence(std::memory_order_seq_cst);
      return true;
  }
}

// Whether `bytes` at a device address can be read and written here.
CUresult check_address(CUdeviceptr address, size_t bytes) {
  if (!address || address % bytes) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult check(const CUstreamBatchMemOpParams& op) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if (op.value.flags & ~wait_flags) return CUDA_ERROR_INVALID_VALUE;
      return check_address(op.value.address, op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? 4 : 8);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      if (op.value.flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) return CUDA_ERROR_INVALID_VALUE;
      return check_address(op.value.address, op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8);
    case CU_STREAM_MEM_OP_BARRIER:
      return op.barrier.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return op.barrier.flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_ATOMIC_REDUCTION: {
      const MemOpReduction& reduction = op.reduction;
      bool wide = reduction.dataType == CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64;
      if (reduction.flags || (!wide && reduction.dataType != CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32))
        return CUDA_ERROR_INVALID_VALUE;
      if (reduction.reductionOp != CU_STREAM_ATOMIC_REDUCTION_OP_OR &&
          reduction.reductionOp != CU_STREAM_ATOMIC_REDUCTION_OP_AND &&
          reduction.reductionOp != CU_STREAM_ATOMIC_REDUCTION_OP_ADD)
        return CUDA_ERROR_INVALID_VALUE;
      return check_address(reduction.address, wide ? 8 : 4);
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult batch(CUstream stream, const CUstreamBatchMemOpParams* params, unsigned count, unsigned flags) {
  return with_context([&](Context&) -> CUresult {
    if (lacks(Lack::memory_operations)) return CUDA_ERROR_NOT_SUPPORTED;
    NodePtr node;
    CUresult result = make_batch_mem_op(params, count, flags, &node);
    return result ? result : submit(stream, std::move(node));
  });
}

CUresult one(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address, uint64_t value, unsigned flags) {
  CUstreamBatchMemOpParams op{};
  op.value = {operation, address, value, flags, 0};
  return batch(stream, &op, 1, 0);
}

}  // namespace

CUresult BatchMemOp::run(Context&) const { return step(&next_); }

CUresult BatchMemOp::step(uint32_t* next) const {
  bool wrote = false, waits = false;
  for (; *next < params.size() && !waits; *next += !waits) {
    waits = !perform(params[*next]);
    wrote |= !waits;
  }
  if (wrote) progress();
  return waits ? again : CUDA_SUCCESS;
}

CUresult make_batch_mem_op(const CUstreamBatchMemOpParams* params, unsigned count, unsigned flags, NodePtr* out) {
  if (flags || count > most_operations || (count && !params)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    CUresult result = check(params[i]);
    if (result) return result;
  }
  *out = std::make_shared<BatchMemOp>(std::vector<CUstreamBatchMemOpParams>(params, params + count));
  return CUDA_SUCCESS;
}

// The first version of these calls does the same; it differs in which devices had it.
#define HCQ_ONE(name, operation, Word)                                                    \
  HCQ_API name(CUstream stream, CUdeviceptr address, Word value, unsigned flags) {        \
    return one(stream, operation, address, value, flags);                                 \
  }                                                                                       \
  HCQ_API name##_ptsz(CUstream stream, CUdeviceptr address, Word value, unsigned flags) { \
    return one(ptsz(stream), operation, address, value, flags);                           \
  }

HCQ_ONE(cuStreamWaitValue32, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t)
HCQ_ONE(cuStreamWaitValue32_v2, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t)
HCQ_ONE(cuStreamWaitValue64, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t)
HCQ_ONE(cuStreamWaitValue64_v2, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t)
HCQ_ONE(cuStreamWriteValue32, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t)
HCQ_ONE(cuStreamWriteValue32_v2, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t)
HCQ_ONE(cuStreamWriteValue64, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t)
HCQ_ONE(cuStreamWriteValue64_v2, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t)
#undef HCQ_ONE

HCQ_API cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params, unsigned flags) {
  return batch(stream, params, count, flags);
}
HCQ_API cuStreamBatchMemOp_ptsz(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params, unsigned flags) {
  return batch(ptsz(stream), params, count, flags);
}
HCQ_API cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params, unsigned flags) {
  return batch(stream, params, count, flags);
}
HCQ_API cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params, unsigned flags) {
  return batch(ptsz(stream), params, count, flags);
}

}  // namespace cudacpu
