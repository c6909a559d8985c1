// Memory of a Vulkan device: blocks of the driver's, cut into allocations, and memory of the host that is imported.
#include <algorithm>
#include <vector>

#include "vulkan/context.hpp"

namespace hcq::vk {

namespace {
constexpr uint64_t kAlignment = 256;            // of allocations: more than any scalar or vector asks for
constexpr uint64_t kBlock = 32u << 20;          // drivers allow few allocations, some 4096
constexpr uint64_t kOwnBlock = 8u << 20;        // from here on an allocation has a block of its own
constexpr uint64_t kApart = uint64_t{1} << 47;  // to where no process has memory
constexpr uint32_t kUsage = kUsageTransferSource | kUsageTransferDestination | kUsageStorage | kUsageDeviceAddress;
uint64_t round_up(uint64_t size, uint64_t to) { return (size + to - 1) / to * to; }
}  // namespace

uint32_t Context::type_of(uint32_t allowed, Use use) const {
  constexpr uint32_t kMapped = kMemoryHostVisible | kMemoryHostCoherent;
  // Required, then what is liked, the more important first.
  uint32_t required = use == Use::device ? 0 : kMapped;
  const uint32_t liked[3][2] = {{kMemoryDeviceLocal, kMapped | kMemoryHostCached},
                                {kMemoryHostCached, 0},
                                {kMemoryDeviceLocal, kMemoryHostCached}};
  const uint32_t* wants = liked[static_cast<int>(use)];
  uint32_t best = ~0u;
  int best_score = -1;
  for (uint32_t i = 0; i < facts.memory.type_count; ++i) {
    uint32_t flags = facts.memory.types[i].flags;
    if (!(allowed & 1u << i) || (flags & required) != required) continue;
    int score = ((flags & wants[0]) == wants[0] ? 2 : 0) + (wants[1] && (flags & wants[1]) == wants[1] ? 1 : 0);
    if (score > best_score) best = i, best_score = score;
  }
  if (best == ~0u) throw Failure{"no memory of this device is reached by the host", kOutOfDeviceMemory};
  return best;
}

Handle Context::make_buffer(uint64_t size, void* next) {
  auto info = make<BufferCreateInfo>(kBufferCreateInfo, next);
  info.size = size;
  info.usage = next ? kUsage & ~kUsageDeviceAddress : kUsage;  // imported memory is only copied from and to
  Handle buffer = 0;
  check("vkCreateBuffer", call.CreateBuffer(device, &info, nullptr, &buffer));
  made(Kind::buffer);
  return buffer;
}

// Under the lock.
Context::Block* Context::make_block(uint64_t size, Use use) {
  auto block = std::make_unique<Block>();
  block->use = use;
  block->size = size;
  try {
    block->buffer = make_buffer(size, nullptr);
    MemoryRequirements needs{};
    call.GetBufferMemoryRequirements(device, block->buffer, &needs);
    auto flags = make<MemoryAllocateFlagsInfo>(kMemoryAllocateFlagsInfo);
    flags.flags = kAllocateDeviceAddress;
    auto info = make<MemoryAllocateInfo>(kMemoryAllocateInfo, &flags);
    info.size = needs.size;
    info.type_index = type_of(needs.type_bits, use);
    check("vkAllocateMemory", call.AllocateMemory(device, &info, nullptr, &block->memory));
    made(Kind::memory);
    check("vkBindBufferMemory", call.BindBufferMemory(device, block->buffer, block->memory, 0));
    auto where = make<BufferDeviceAddressInfo>(kBufferDeviceAddressInfo);
    where.buffer = block->buffer;
    block->address = block->device_address = call.GetBufferDeviceAddress(device, &where);
    if (use != Use::device || unified) {
      void* mapped = nullptr;
      check("vkMapMemory", call.MapMemory(device, block->memory, 0, kWholeSize, 0, &mapped));
      block->address = reinterpret_cast<uint64_t>(mapped);
    } else if (apart) {
      block->address += kApart;
    }
  } catch (...) {
    drop_block(block.get());
    throw;
  }
  block->free_list[0] = size;
  allocated_ += size;
  Block* made = block.get();
  blocks_[made->address] = std::move(block);
  return made;
}

// Under the lock. Also for a block that is not in the map yet.
void Context::drop_block(Block* block) {
  if (block->buffer) call.DestroyBuffer(device, block->buffer, nullptr), gone(Kind::buffer);
  if (block->memory) call.FreeMemory(device, block->memory, nullptr), gone(Kind::memory);  // unmaps it
  auto found = blocks_.find(block->address);
  if (found != blocks_.end() && found->second.get() == block) {
    allocated_ -= block->size;
    dropped.fetch_add(1, std::memory_order_relaxed);
    blocks_.erase(found);
  }
}

uint64_t Context::allocate(uint64_t size, Use use) {
  uint64_t most = std::min(facts.max_allocation, facts.max_buffer);
  if (size > most)
    throw Failure{std::to_string(size) + " bytes: this device gives " + std::to_string(most) + " at once at most",
                  kOutOfDeviceMemory};
  size = std::max(round_up(size, kAlignment), kAlignment);
  if (size > most) size = most;
  std::lock_guard<std::mutex> guard(lock_);
  if (closed_) throw Failure{"the device is closed", kDeviceLost};
  Block* block = nullptr;
  uint64_t offset = 0;
  if (size >= kOwnBlock) {
    block = make_block(size, use);
    block->whole = true;
  } else {
    // Best fit among the blocks there are.
    uint64_t best = ~uint64_t{0};
    for (auto& each : blocks_) {
      if (each.second->use != use || each.second->whole) continue;
      for (auto& piece : each.second->free_list)
        if (piece.second >= size && piece.second < best)
          best = piece.second, block = each.second.get(), offset = piece.first;
    }
    if (!block) block = make_block(std::min(kBlock, most), use);
  }
  uint64_t left = block->free_list[offset] - size;
  block->free_list.erase(offset);
  if (left) block->free_list[offset + size] = left;
  block->used += size;
  taken_[block->address + offset] = {block, size};
  return block->address + offset;
}

void Context::free(uint64_t address) {
  std::lock_guard<std::mutex> guard(lock_);
  auto found = taken_.find(address);
  if (closed_ || busy || found == taken_.end()) return;
  auto [block, size] = found->second;
  taken_.erase(found);
  block->used -= size;
  if (block->used == 0) {
    // One empty block of a use is kept for what comes next.
    bool spare = false;
    for (auto& each : blocks_)
      spare = spare || (each.second.get() != block && each.second->use == block->use && !each.second->whole &&
                        each.second->used == 0);
    if (block->whole || spare) return drop_block(block);
  }
  auto& list = block->free_list;
  auto piece = list.emplace(address - block->address, size).first;
  auto after = std::next(piece);
  if (after != list.end() && piece->first + piece->second == after->first) {
    piece->second += after->second;
    list.erase(after);
  }
  if (piece != list.begin()) {
    auto before = std::prev(piece);
    if (before->first + before->second == piece->first) {
      before->second += piece->second;
      list.erase(piece);
    }
  }
}

bool Context::find(uint64_t address, Place* place) {
  std::lock_guard<std::mutex> guard(lock_);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return false;
  const Block& block = *std::prev(after)->second;
  uint64_t offset = address - block.address;
  if (offset >= block.size) return false;
  *place = Place{block.buffer, offset, block.size - offset, block.device_address + offset};
  return true;
}

bool Context::import(uint64_t address, uint64_t bytes, Imported* imported, uint64_t* offset) {
  uint64_t alignment = facts.import_alignment;
  if (!alignment || !call.GetMemoryHostPointerPropertiesEXT) return false;
  uint64_t start = address / alignment * alignment;
  uint64_t size = round_up(address + bytes, alignment) - start;
  auto pointer = make<MemoryHostPointerProperties>(kMemoryHostPointerProperties);
  if (call.GetMemoryHostPointerPropertiesEXT(device, kHandleHostAllocation, reinterpret_cast<void*>(start), &pointer) !=
      kSuccess)
    return false;
  Imported made_here;
  try {
    auto external = make<ExternalMemoryBufferCreateInfo>(kExternalMemoryBufferCreateInfo);
    external.handle_types = kHandleHostAllocation;
    made_here.buffer = make_buffer(size, &external);
    MemoryRequirements needs{};
    call.GetBufferMemoryRequirements(device, made_here.buffer, &needs);
    uint32_t allowed = needs.type_bits & pointer.type_bits, index = 0;
    if (!allowed || needs.size > size) throw Failure{"this memory can't be imported", kInvalidExternalHandle};
    while (!(allowed & 1u << index)) ++index;
    auto source = make<ImportMemoryHostPointerInfo>(kImportMemoryHostPointerInfo);
    source.handle_type = kHandleHostAllocation;
    source.pointer = reinterpret_cast<void*>(start);
    auto info = make<MemoryAllocateInfo>(kMemoryAllocateInfo, &source);
    info.size = size;
    info.type_index = index;
    check("vkAllocateMemory", call.AllocateMemory(device, &info, nullptr, &made_here.memory));
    made(Kind::memory);
    check("vkBindBufferMemory", call.BindBufferMemory(device, made_here.buffer, made_here.memory, 0));
  } catch (const Failure&) {
    release(made_here);
    return false;
  }
  *imported = made_here;
  *offset = address - start;
  return true;
}

void Context::release(const Imported& imported) {
  if (busy) return;
  if (imported.buffer) call.DestroyBuffer(device, imported.buffer, nullptr), gone(Kind::buffer);
  if (imported.memory) call.FreeMemory(device, imported.memory, nullptr), gone(Kind::memory);
}

uint64_t Context::allocated() {
  std::lock_guard<std::mutex> guard(lock_);
  return allocated_;
}

}  // namespace hcq::vk
