// A loaded object: relocatable ELF sections laid into memory, once, or once a group context where the object has local
// memory (HCQ_LOCAL). Needs no compiler and no dynamic linker.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cpu/arena.hpp"
#include "cpu/context.hpp"

namespace hcq {

// One copy of an object's code and read-only data, with the local memory that this code reaches.
struct Instance {
  Piece code;
  Piece local;
};

class Image {
 public:
  // nullptr, with a message, when the object can't be loaded.
  static Image* load(const uint8_t* object, size_t size, std::string* error);
  ~Image();  // no thread may be running its code
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  // Offset of a function in an instance's code.
  bool function(const std::string& name, size_t* offset) const;
  bool has_local() const { return local_size_ != 0; }
  const Instance& first() const { return first_; }
  // The instance of a context, made when it first asks. A context asks for itself only, from the thread that holds it.
  // nullptr when there is no memory for one.
  const Instance* instance(uint32_t context) {
    // acquire: pairs with the release in make_instance, by whichever thread held the context before
    auto* chunk = chunks_[context / kChunk].load(std::memory_order_acquire);
    if (chunk && chunk->instances[context % kChunk]) return chunk->instances[context % kChunk];
    return make_instance(context);
  }
  // Held by who runs the first instance because there was no memory for one of its own.
  std::mutex& first_lock() { return first_lock_; }

 private:
  friend class ObjectReader;
  enum class Region : uint8_t { code, local, shared, absolute };
  struct Target {
    Region region = Region::absolute;
    uint64_t value = 0;  // offset in the region, or the address
  };
  struct Fixup {
    Region region;  // of what is patched: code or shared
    uint32_t type;
    uint64_t offset;
    Target target;
    int64_t addend;
    uint64_t slot;  // offset in the code region; 0 without one
  };
  static constexpr uint32_t kChunk = 64;
  struct Chunk {
    Instance* instances[kChunk] = {};
  };

  Image() = default;
  bool read(const uint8_t* object, size_t size, std::string* error);  // object.cpp
  const Instance* make_instance(uint32_t context);
  bool place(Instance*, bool with_shared, std::string* error);
  void drop(const Instance&);

  uint32_t generation_ = g_generation;
  Span* span_ = nullptr;
  std::vector<uint8_t> code_bytes_, shared_bytes_;  // before relocation; dropped when there will be no other instance
  size_t code_size_ = 0, local_size_ = 0, shared_size_ = 0, table_ = 0;
  size_t code_align_ = 64, local_align_ = 64, shared_align_ = 64;
  std::vector<Fixup> fixups_;
  std::unordered_map<std::string, size_t> functions_;
  Instance first_;
  Piece shared_;
  std::mutex first_lock_;
  std::atomic<Chunk*> chunks_[kMaxContexts / kChunk] = {};
};

}  // namespace hcq
