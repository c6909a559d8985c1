// Parsing of the library container. Every length is checked against what is left; nothing is trusted.
#include "cpu/library.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace hcq {

namespace {

constexpr char kMagic[8] = {'H', 'C', 'Q', 'L', 'I', 'B', '\x1a', '\n'};
constexpr uint32_t kVersion = 2;
constexpr size_t kHeader = 48;
#if defined(__x86_64__)
constexpr uint32_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kMachine = EM_AARCH64;
#else
constexpr uint32_t kMachine = 0;
#endif

// CRC-32 as zlib computes it (reflected polynomial 0xedb88320), eight bytes a step.
struct CrcTable {
  uint32_t t[8][256] = {};
  constexpr CrcTable() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
      t[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; ++i)
      for (size_t k = 1; k < 8; ++k) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xff];
  }
};
constexpr CrcTable kCrc;

uint32_t crc32(uint32_t crc, const uint8_t* p, size_t n) {
  const auto& t = kCrc.t;
  crc = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint32_t a, b;
    std::memcpy(&a, p, 4);
    std::memcpy(&b, p + 4, 4);
    a ^= crc;
    crc = t[7][a & 0xff] ^ t[6][(a >> 8) & 0xff] ^ t[5][(a >> 16) & 0xff] ^ t[4][a >> 24] ^ t[3][b & 0xff] ^
          t[2][(b >> 8) & 0xff] ^ t[1][(b >> 16) & 0xff] ^ t[0][b >> 24];
  }
  for (; n; --n, ++p) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xff];
  return ~crc;
}

// Reads little-endian fields one after another; once something doesn't fit, everything is zero and `ok` false.
struct Reader {
  const uint8_t* at;
  size_t left;
  bool ok = true;

  template <class T>
  T number() {
    T value{};
    if (left < sizeof(T)) {
      ok = false;
      left = 0;
      return value;
    }
    std::memcpy(&value, at, sizeof(T));
    at += sizeof(T);
    left -= sizeof(T);
    return value;
  }
  std::string text(size_t n) {
    if (left < n) {
      ok = false;
      left = 0;
      return {};
    }
    std::string s(reinterpret_cast<const char*>(at), n);
    at += n;
    left -= n;
    return s;
  }
};

uint8_t size_of(ParamKind kind) {
  switch (kind) {
    case ParamKind::i8:
    case ParamKind::u8:
    case ParamKind::boolean:
    case ParamKind::bits8:
      return 1;
    case ParamKind::i16:
    case ParamKind::u16:
    case ParamKind::f16:
    case ParamKind::bf16:
    case ParamKind::bits16:
      return 2;
    case ParamKind::i32:
    case ParamKind::u32:
    case ParamKind::f32:
    case ParamKind::bits32:
      return 4;
    default:
      return 8;
  }
}

// One function record. False when a field is out of range.
bool read_function(Reader& in, LibraryFunction* f) {
  auto name_size = in.number<uint16_t>();
  auto reason_size = in.number<uint16_t>();
  auto kind = in.number<uint8_t>();
  auto flags = in.number<uint8_t>();
  auto count = in.number<uint16_t>();
  f->scratch_group = in.number<uint32_t>();
  f->scratch_item = in.number<uint32_t>();
  f->name = in.text(name_size);
  f->refused = in.text(reason_size);
  if (!in.ok || kind < static_cast<uint8_t>(EntryKind::plain) || kind > static_cast<uint8_t>(EntryKind::packed))
    return false;
  f->kind = static_cast<EntryKind>(kind);
  f->typed = flags & 1;
  uint32_t end = 0;
  bool values = false;
  for (uint16_t i = 0; i < count && in.ok; ++i) {
    auto param_kind = in.number<uint8_t>();
    auto param_name = in.number<uint8_t>();
    auto offset = in.number<uint32_t>();
    auto access = static_cast<Access>(param_kind >> 6);
    param_kind &= 63;
    Param p{static_cast<ParamKind>(param_kind), access, 0, offset, in.text(param_name)};
    if (!in.ok || param_kind > static_cast<uint8_t>(ParamKind::bits64)) return false;
    p.size = size_of(p.kind);
    // In order, aligned, without overlap; pointers first.
    if (offset < end || offset % p.size || offset > (1u << 16) || (values && p.kind == ParamKind::pointer))
      return false;
    values = p.kind != ParamKind::pointer;
    end = offset + p.size;
    f->params.push_back(std::move(p));
  }
  return in.ok;
}

// Levenshtein distance, for the nearest name in a message.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

const char* machine_name(uint32_t machine) {
  return machine == EM_X86_64 ? "x86-64" : machine == EM_AARCH64 ? "aarch64" : "an unknown processor";
}

}  // namespace

bool library_parse(const uint8_t* bytes, size_t size, Library* out, std::string* error) {
  if (size < sizeof kMagic || std::memcmp(bytes, kMagic, sizeof kMagic) != 0) {
    *error = "not a CPU library of hcq (" + std::to_string(size) +
             " bytes that don't start like one): pass what this device's compiler returned";
    return false;
  }
  auto damaged = [error](const std::string& what) {
    *error = "damaged library: " + what + "; compile it anew";
    return false;
  };
  if (size < kHeader) return damaged("it ends within its header");
  Reader header{bytes + sizeof kMagic, kHeader - sizeof kMagic};
  auto version = header.number<uint32_t>();
  auto crc = header.number<uint32_t>();
  auto machine = header.number<uint32_t>();
  auto count = header.number<uint32_t>();
  auto total = header.number<uint64_t>();
  auto object_offset = header.number<uint64_t>();
  auto object_size = header.number<uint64_t>();
  if (version != kVersion) {
    *error = "library of format " + std::to_string(version) + ", this hcq reads format " + std::to_string(kVersion) +
             ": compile it anew";
    return false;
  }
  if (total != size) return damaged("it has " + std::to_string(size) + " bytes instead of " + std::to_string(total));
  const uint8_t zero[4] = {};
  if (crc32(crc32(crc32(0, bytes, 12), zero, 4), bytes + 16, size - 16) != crc)
    return damaged("its checksum doesn't match");
  if (machine != kMachine) {
    *error = std::string("library for ") + machine_name(machine) + ", this processor is " + machine_name(kMachine) +
             ": compile it here";
    return false;
  }
  if (object_offset < kHeader || object_offset > size || object_offset % 16 || object_size > size - object_offset)
    return damaged("the object lies outside of it");
  Reader table{bytes + kHeader, object_offset - kHeader};
  for (uint32_t i = 0; i < count; ++i) {
    LibraryFunction f;
    if (!read_function(table, &f)) return damaged("its function table is malformed");
    out->functions.push_back(std::move(f));
  }
  out->object = bytes + object_offset;
  out->object_size = object_size;
  return true;
}

const LibraryFunction* library_find(const Library& library, const std::string& name, std::string* error) {
  const LibraryFunction* nearest = nullptr;
  size_t best = name.size() / 2 + 1;
  std::string there;
  for (const auto& f : library.functions) {
    if (f.name == name) {
      if (f.refused.empty()) return &f;
      *error = "function '" + name + "' can't be launched: " + f.refused;
      return nullptr;
    }
    if (!f.refused.empty()) continue;
    there += (there.empty() ? "'" : ", '") + f.name + "'";
    size_t d = distance(name, f.name);
    if (d < best) best = d, nearest = &f;
  }
  *error = "no function '" + name + "' in the library; " + (there.empty() ? "it has none" : "it has " + there);
  if (nearest) *error += "; did you mean '" + nearest->name + "'?";
  return nullptr;
}

}  // namespace hcq
