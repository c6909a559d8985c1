// Reading of relocatable ELF64 objects (System V gABI, "Object Files"). An object comes out of a checked library, but
// every offset and index is checked again: a wrong one is a message, never a crash. What is read is placed by
// loader.cpp.
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "core/program.hpp"
#include "cpu/externals.hpp"
#include "cpu/loader.hpp"
#include "cpu/relocate.hpp"

namespace hcq {

namespace {

#if defined(__aarch64__)
constexpr auto kNeeds = needs_aarch64;
constexpr auto kWidth = width_aarch64;
constexpr uint16_t kMachine = EM_AARCH64;
constexpr uint32_t kAddress = R_AARCH64_ABS64;
// ldr x16, #8; br x16; then the address
constexpr uint8_t kStub[8] = {0x50, 0x00, 0x00, 0x58, 0x00, 0x02, 0x1f, 0xd6};
#else
constexpr auto kNeeds = needs_x86_64;
constexpr auto kWidth = width_x86_64;
constexpr uint16_t kMachine = EM_X86_64;
constexpr uint32_t kAddress = R_X86_64_64;
// jmp *2(%rip); two bytes of padding; then the address
constexpr uint8_t kStub[8] = {0xff, 0x25, 0x02, 0x00, 0x00, 0x00, 0x66, 0x90};
#endif
constexpr size_t kStubSize = 16;
constexpr size_t kLargest = size_t{1} << 30;  // code or data of one object
constexpr const char* kLocalSection = ".bss.hcq_local";

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

bool starts_with(const std::string& s, const char* prefix) { return s.rfind(prefix, 0) == 0; }

}  // namespace

// Reads one object into an Image. Used once.
class ObjectReader {
 public:
  ObjectReader(const uint8_t* object, size_t size, Image* image, std::string* error)
      : object_(object), size_(size), image_(image), error_(error) {}

  bool read() { return read_sections() && lay_out() && read_relocations() && finish(); }

 private:
  using Region = Image::Region;
  using Target = Image::Target;

  bool fail(const std::string& what) {
    *error_ = "cannot load the object: " + what;
    return false;
  }

  template <class T>
  bool at(uint64_t offset, T* out) const {
    if (offset > size_ || size_ - offset < sizeof(T)) return false;
    std::memcpy(out, object_ + offset, sizeof(T));
    return true;
  }

  // The text at `offset` of string table `table`; false when it lies outside or doesn't end.
  bool text(const Elf64_Shdr& table, uint64_t offset, std::string* out) const {
    if (offset >= table.sh_size) return false;
    const char* from = reinterpret_cast<const char*>(object_ + table.sh_offset + offset);
    size_t n = strnlen(from, table.sh_size - offset);
    if (n == table.sh_size - offset) return false;
    out->assign(from, n);
    return true;
  }

  bool read_sections() {
    Elf64_Ehdr head;
    if (!at(0, &head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return fail("it isn't ELF");
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB)
      return fail("it isn't 64-bit little-endian ELF");
    if (head.e_type != ET_REL) return fail("it isn't relocatable (compile with -c)");
    if (head.e_machine != kMachine) return fail("it is for another processor");
    if (head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum == 0) return fail("it has no section headers");
    for (size_t i = 0; i < head.e_shnum; ++i) {
      Elf64_Shdr s;
      if (head.e_shoff > size_ || !at(head.e_shoff + i * sizeof s, &s)) return fail("its section headers are cut off");
      bool stored = s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL;
      if (stored && (s.sh_offset > size_ || s.sh_size > size_ - s.sh_offset))
        return fail("section " + std::to_string(i) + " lies outside of it");
      headers_.push_back(s);
    }
    if (head.e_shstrndx >= headers_.size() || headers_[head.e_shstrndx].sh_type != SHT_STRTAB)
      return fail("its section names are missing");
    names_.resize(headers_.size());
    for (size_t i = 0; i < headers_.size(); ++i) {
      if (headers_[i].sh_type != SHT_NULL && !text(headers_[head.e_shstrndx], headers_[i].sh_name, &names_[i]))
        return fail("the name of section " + std::to_string(i) + " lies outside of it");
      if (headers_[i].sh_type == SHT_SYMTAB) {
        if (symtab_) return fail("it has two symbol tables");
        symtab_ = i;
      }
    }
    if (!symtab_) return true;
    const auto& table = headers_[symtab_];
    if (table.sh_link >= headers_.size() || headers_[table.sh_link].sh_type != SHT_STRTAB ||
        table.sh_entsize != sizeof(Elf64_Sym))
      return fail("its symbol table is malformed");
    symbols_.resize(table.sh_size / sizeof(Elf64_Sym));
    if (symbols_.empty()) return true;
    std::memcpy(symbols_.data(), object_ + table.sh_offset, symbols_.size() * sizeof(Elf64_Sym));
    return true;
  }

  // Which region a section goes to; false where it isn't loaded.
  bool region_of(size_t i, Region* region) const {
    const auto& s = headers_[i];
    const auto& name = names_[i];
    if (!(s.sh_flags & SHF_ALLOC) || s.sh_type == SHT_NULL || s.sh_type == SHT_NOTE) return false;
    if (starts_with(name, ".eh_frame") || starts_with(name, ".note")) return false;  // nothing unwinds through kernels
    if (name == kLocalSection)
      *region = Region::local;
    else if (s.sh_type == SHT_NOBITS || ((s.sh_flags & SHF_WRITE) && !starts_with(name, ".data.rel.ro")))
      *region = Region::shared;
    else
      *region = Region::code;  // constant once relocated
    return true;
  }

  // Gives every loaded section its offset, and copies contents.
  bool lay_out() {
    placed_.assign(headers_.size(), Target{});
    loaded_.assign(headers_.size(), false);
    size_t* sizes[] = {&image_->code_size_, &image_->local_size_, &image_->shared_size_};
    size_t* aligns[] = {&image_->code_align_, &image_->local_align_, &image_->shared_align_};
    for (size_t i = 0; i < headers_.size(); ++i) {
      const auto& s = headers_[i];
      Region region;
      if (!region_of(i, &region)) continue;
      if (s.sh_flags & SHF_TLS)
        return fail("it has thread-local variables (" + names_[i] +
                    "): kernels run on whichever thread is free; use HCQ_LOCAL, or a buffer");
      if (s.sh_type == SHT_INIT_ARRAY || s.sh_type == SHT_FINI_ARRAY || s.sh_type == SHT_PREINIT_ARRAY ||
          starts_with(names_[i], ".ctors") || starts_with(names_[i], ".dtors"))
        return fail("it has constructors or destructors (" + names_[i] + "), which are never run");
      if (s.sh_addralign > 65536 || (s.sh_addralign & (s.sh_addralign - 1)))
        return fail("section " + names_[i] + " wants alignment " + std::to_string(s.sh_addralign));
      if (region == Region::local && s.sh_type != SHT_NOBITS)
        return fail("local memory (HCQ_LOCAL) can't have an initial value");
      size_t align = std::max<size_t>(s.sh_addralign, 16);
      size_t& end = *sizes[static_cast<size_t>(region)];
      size_t& most = *aligns[static_cast<size_t>(region)];
      most = std::max(most, align);
      size_t offset = round_up(end, align);
      if (s.sh_size > kLargest || offset + s.sh_size > kLargest)
        return fail("section " + names_[i] + " is too large (" + std::to_string(s.sh_size) + " bytes)");
      end = offset + s.sh_size;
      if (region == Region::local && end > kMaxLocal)
        return fail("it has " + std::to_string(end) + " bytes of local memory (HCQ_LOCAL); a work-group has at most " +
                    std::to_string(kMaxLocal) + " (limits.local_memory_bytes)");
      loaded_[i] = true;
      placed_[i] = {region, offset};
      if (region == Region::local) continue;
      auto& bytes = region == Region::code ? image_->code_bytes_ : image_->shared_bytes_;
      if (s.sh_type == SHT_NOBITS) continue;  // cleared where it is placed
      bytes.resize(end);
      if (s.sh_size) std::memcpy(bytes.data() + offset, object_ + s.sh_offset, s.sh_size);
    }
    return place_symbols();
  }

  bool place_symbols() {
    targets_.resize(symbols_.size());
    defined_.assign(symbols_.size(), false);
    for (size_t i = 1; i < symbols_.size(); ++i) {
      const auto& s = symbols_[i];
      if (s.st_shndx == SHN_UNDEF) continue;
      if (s.st_shndx == SHN_ABS) {
        targets_[i] = {Region::absolute, s.st_value};
        defined_[i] = true;
      } else if (s.st_shndx == SHN_COMMON) {
        size_t align = std::max<size_t>(s.st_value, 16);
        if ((align & (align - 1)) || align > 65536 || s.st_size > kLargest) return fail("a common symbol is malformed");
        size_t offset = round_up(image_->shared_size_, align);
        if (offset + s.st_size > kLargest) return fail("its common symbols are too large");
        image_->shared_size_ = offset + s.st_size;
        image_->shared_align_ = std::max(image_->shared_align_, align);
        targets_[i] = {Region::shared, offset};
        defined_[i] = true;
      } else if (s.st_shndx < headers_.size() && loaded_[s.st_shndx]) {
        if (s.st_value > headers_[s.st_shndx].sh_size)
          return fail("symbol " + std::to_string(i) + " lies outside of its section");
        targets_[i] = {placed_[s.st_shndx].region, placed_[s.st_shndx].value + s.st_value};
        defined_[i] = true;
        if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && ELF64_ST_BIND(s.st_info) != STB_LOCAL &&
            targets_[i].region == Region::code)
          image_->functions_[symbol_name(i)] = targets_[i].value;
      }
    }
    return true;
  }

  std::string symbol_name(size_t i) const {
    std::string name;
    const auto& s = symbols_[i];
    if (ELF64_ST_TYPE(s.st_info) == STT_SECTION && s.st_shndx < names_.size()) return names_[s.st_shndx];
    if (!text(headers_[headers_[symtab_].sh_link], s.st_name, &name)) name = "symbol " + std::to_string(i);
    return name;
  }

  // Where an undefined symbol is; remembers those that nobody has.
  Target external(size_t i) {
    auto known = externals_.find(i);
    if (known != externals_.end()) return {Region::absolute, known->second};
    std::string name = symbol_name(i);
    uint64_t address = reinterpret_cast<uint64_t>(external_address(name));
    if (!address && ELF64_ST_BIND(symbols_[i].st_info) != STB_WEAK)
      missing_ += (missing_.empty() ? "'" : ", '") + name + "'";
    externals_[i] = address;
    return {Region::absolute, address};
  }

  // A table slot for a target, in the code region. One a symbol.
  uint64_t slot_of(size_t symbol, const Target& target) {
    auto& slot = slots_[symbol];
    if (slot) return slot;
    slot = grow(8);
    add_address(slot, target);
    return slot;
  }

  // A stub that jumps to an external function. One a symbol.
  uint64_t stub_of(size_t symbol, const Target& target) {
    auto& stub = stubs_[symbol];
    if (stub) return stub;
    stub = grow(kStubSize);
    std::memcpy(image_->code_bytes_.data() + stub, kStub, sizeof kStub);
    add_address(stub + sizeof kStub, target);
    return stub;
  }

  size_t grow(size_t size) {
    size_t offset = round_up(image_->code_size_, 16);
    image_->code_size_ = offset + size;
    image_->code_bytes_.resize(image_->code_size_);
    return offset;
  }

  void add_address(uint64_t offset, const Target& target) {
    image_->fixups_.push_back({Region::code, kAddress, offset, target, 0, 0});
  }

  bool read_relocations() {
    image_->table_ = grow(16);  // also keeps every slot's offset from being 0
    for (size_t i = 0; i < headers_.size(); ++i) {
      const auto& s = headers_[i];
      if (s.sh_type != SHT_RELA && s.sh_type != SHT_REL) continue;
      if (s.sh_info >= headers_.size()) return fail("a relocation section is malformed");
      if (!loaded_[s.sh_info]) continue;
      if (s.sh_type == SHT_REL) return fail("it has relocations without addends");
      if (s.sh_entsize != sizeof(Elf64_Rela) || !symtab_ || s.sh_link != symtab_)
        return fail("a relocation section is malformed");
      for (uint64_t at_offset = 0; at_offset + sizeof(Elf64_Rela) <= s.sh_size; at_offset += sizeof(Elf64_Rela)) {
        Elf64_Rela rela;
        std::memcpy(&rela, object_ + s.sh_offset + at_offset, sizeof rela);
        if (!relocation(s.sh_info, rela)) return false;
      }
    }
    if (missing_.empty()) return true;
    return fail("it needs " + missing_ +
                ", which is defined neither in the source nor in this process, its C library or math library");
  }

  bool relocation(size_t section, const Elf64_Rela& rela) {
    auto type = static_cast<uint32_t>(ELF64_R_TYPE(rela.r_info));
    size_t symbol = ELF64_R_SYM(rela.r_info);
    Needs needs = kNeeds(type);
    if (needs == Needs::nothing) return true;
    if (symbol >= symbols_.size()) return fail("a relocation names a symbol that isn't there");
    const auto& header = headers_[section];
    if (rela.r_offset > header.sh_size || header.sh_size - rela.r_offset < kWidth(type))
      return fail("a relocation lies outside of " + names_[section]);
    if (header.sh_type == SHT_NOBITS)
      return fail("a relocation patches " + names_[section] + ", which is stored nowhere");
    if (needs == Needs::thread || ELF64_ST_TYPE(symbols_[symbol].st_info) == STT_TLS)
      return fail("it uses the thread-local variable '" + symbol_name(symbol) +
                  "': kernels run on whichever thread is free; use HCQ_LOCAL, or a buffer");
    if (needs == Needs::unknown)
      return fail("relocation type " + std::to_string(type) + " in " + names_[section] + " is not supported");
    if (ELF64_ST_TYPE(symbols_[symbol].st_info) == STT_GNU_IFUNC)
      return fail("'" + symbol_name(symbol) + "' is chosen at load time (ifunc), which is not supported");

    Target target;
    bool far = false;
    if (needs == Needs::table) {
      target = {Region::code, image_->table_};
    } else if (symbol == 0) {
      target = {Region::absolute, 0};
    } else if (defined_[symbol]) {
      target = targets_[symbol];
    } else if (symbols_[symbol].st_shndx == SHN_UNDEF) {
      if (symbol_name(symbol) == "_GLOBAL_OFFSET_TABLE_") {
        target = {Region::code, image_->table_};
      } else {
        target = external(symbol);
        far = true;
      }
    } else {
      return fail("'" + symbol_name(symbol) + "' is in a section that isn't loaded");
    }
    Region where = placed_[section].region;
    if (where == Region::shared && (target.region == Region::local || target.region == Region::code))
      shared_points_in_ = shared_points_in_ || target.region == Region::local ||
                          (code_section(symbol) && (headers_[code_section(symbol)].sh_flags & SHF_EXECINSTR));
    uint64_t slot = 0;
    if (needs == Needs::slot) slot = slot_of(symbol, target);
    if (needs == Needs::function && far && target.value) target = {Region::code, stub_of(symbol, target)};
    image_->fixups_.push_back({where, type, placed_[section].value + rela.r_offset, target, rela.r_addend, slot});
    return true;
  }

  size_t code_section(size_t symbol) const {
    size_t section = symbols_[symbol].st_shndx;
    return section < headers_.size() ? section : 0;
  }

  bool finish() {
    if (image_->has_local() && shared_points_in_)
      return fail(
          "a global variable starts with the address of a function or of local memory, which are many in a program "
          "with HCQ_LOCAL: make it const");
    return true;
  }

  const uint8_t* object_;
  size_t size_;
  Image* image_;
  std::string* error_;
  std::vector<Elf64_Shdr> headers_;
  std::vector<std::string> names_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<Target> placed_, targets_;  // by section; by symbol
  std::vector<bool> loaded_, defined_;
  std::unordered_map<size_t, uint64_t> externals_, slots_, stubs_;
  std::string missing_;
  size_t symtab_ = 0;
  bool shared_points_in_ = false;
};

bool Image::read(const uint8_t* object, size_t size, std::string* error) {
  return ObjectReader(object, size, this, error).read();
}

}  // namespace hcq
