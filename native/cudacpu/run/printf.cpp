// CUDA C++ Programming Guide, "Formatted Output": %[flags][width][.precision][size]type, at most 32 arguments, each
// where C's alignment puts it in the buffer that vprintf is given. What printf of C does with a conversion, snprintf
// does here.
#include "run/printf.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "run/abi.hpp"

namespace cudacpu {

namespace {

constexpr int kMostArguments = 32;

struct Arguments {
  const uint8_t* at;
  int taken = 0;

  template <typename T>
  T next() {
    T value{};
    auto address = (reinterpret_cast<uintptr_t>(at) + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
    at = reinterpret_cast<const uint8_t*>(address + sizeof(T));
    ++taken;
    return value;
  }
};

template <typename T>
void print(std::string& out, const char* conversion, T value) {
  char small[128];
  int size = std::snprintf(small, sizeof small, conversion, value);
  if (size < 0) return;
  if (static_cast<size_t>(size) < sizeof small) {
    out.append(small, static_cast<size_t>(size));
    return;
  }
  size_t before = out.size();
  out.resize(before + static_cast<size_t>(size) + 1);
  std::snprintf(&out[before], static_cast<size_t>(size) + 1, conversion, value);
  out.resize(before + static_cast<size_t>(size));
}

// One conversion, put together for snprintf. False: it is none, or too long.
class Conversion {
 public:
  // `text` stands after the percent sign.
  const char* parse(const char* text, Arguments& arguments) {
    add('%');
    while (*text && std::strchr("#0 +-", *text)) add(*text++);
    text = number(text, arguments);
    if (*text == '.') {
      add(*text++);
      text = number(text, arguments);
    }
    while (*text == 'h' || *text == 'l') longs_ += *text++ == 'l';
    type_ = *text;
    return text;
  }

  bool print_to(std::string& out, Arguments& arguments) {
    switch (type_) {
      case 'd':
      case 'i':
        finish("ll");
        if (longs_) return print(out, text_, static_cast<long long>(arguments.next<int64_t>())), true;
        return print(out, text_, static_cast<long long>(arguments.next<int32_t>())), true;
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        finish("ll");
        if (longs_) return print(out, text_, static_cast<unsigned long long>(arguments.next<uint64_t>())), true;
        return print(out, text_, static_cast<unsigned long long>(arguments.next<uint32_t>())), true;
      case 'c':
        finish("");
        return print(out, text_, static_cast<int>(arguments.next<int32_t>())), true;
      case 'p':
        finish("");
        return print(out, text_, reinterpret_cast<void*>(arguments.next<uint64_t>())), true;
      case 's':
        finish("");
        return print(out, text_, reinterpret_cast<const char*>(arguments.next<uint64_t>())), true;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
      case 'a':
      case 'A':
        finish("");
        return print(out, text_, arguments.next<double>()), true;
      default:
        return false;
    }
  }

 private:
  void add(char c) {
    if (size_ < sizeof text_ - 4) text_[size_++] = c;
  }

  const char* number(const char* text, Arguments& arguments) {
    if (*text == '*') {
      char digits[16];
      std::snprintf(digits, sizeof digits, "%d", arguments.next<int32_t>());
      for (const char* d = digits; *d; ++d) add(*d);
      return text + 1;
    }
    while (*text >= '0' && *text <= '9') add(*text++);
    return text;
  }

  void finish(const char* size) {
    while (*size) text_[size_++] = *size++;
    text_[size_++] = type_;
    text_[size_] = 0;
  }

  char text_[48];
  size_t size_ = 0;
  int longs_ = 0;
  char type_ = 0;
};

}  // namespace

int format(std::string& out, const char* text, const void* arguments) {
  if (!text) return -1;
  Arguments left{static_cast<const uint8_t*>(arguments)};
  for (const char* at = text; *at;) {
    if (*at != '%') {
      const char* next = std::strchr(at, '%');
      size_t size = next ? static_cast<size_t>(next - at) : std::strlen(at);
      out.append(at, size);
      at += size;
      continue;
    }
    if (at[1] == '%') {
      out += '%';
      at += 2;
      continue;
    }
    Conversion conversion;
    const char* end = left.taken < kMostArguments ? conversion.parse(at + 1, left) : at;
    if (end != at && conversion.print_to(out, left)) {
      at = end + 1;
    } else {
      out += *at++;  // what is no conversion is printed as it stands
    }
  }
  return left.taken;
}

std::string& printed() {
  // Not destroyed at the thread's end, when kernels of other threads' destructors could still print: never, but cheap.
  static thread_local std::string text;
  return text;
}

extern "C" __attribute__((visibility("default"))) int32_t hcq_cuda_printf(const Block*, const char* text,
                                                                          const void* arguments) {
  return format(printed(), text, arguments);
}

}  // namespace cudacpu
