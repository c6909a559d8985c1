// Searching text: the pattern in constant memory, skips by a table, case folded; distances between words.

__constant__ char pattern[64];
__constant__ unsigned char skips[256];

extern "C" __global__ void find_all(const char* text, int length, int size, int* positions, int* count, int capacity) {
  extern __shared__ char window[];
  int base = blockIdx.x * blockDim.x;
  for (int i = threadIdx.x; i < blockDim.x + size - 1; i += blockDim.x)
    window[i] = base + i < length ? text[base + i] : 0;
  __syncthreads();
  int i = base + threadIdx.x;
  if (i + size > length) return;
  for (int j = 0; j < size; j++)
    if (window[threadIdx.x + j] != pattern[j]) return;
  int slot = atomicAdd(count, 1);
  if (slot < capacity) positions[slot] = i;
}

// Horspool: each thread looks through a piece of its own, with the table of skips.
extern "C" __global__ void count_skipping(const unsigned char* text, int length, int size, int piece, int* count) {
  int from = (blockIdx.x * blockDim.x + threadIdx.x) * piece, to = min(from + piece + size - 1, length), found = 0;
  for (int at = from; at + size <= to; at += skips[text[at + size - 1]]) {
    int j = size - 1;
    while (j >= 0 && text[at + j] == (unsigned char)pattern[j]) j--;
    found += j < 0;
  }
  if (__syncthreads_or(found)) atomicAdd(count, found);
}

extern "C" __global__ void vowels(char* text, int length) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= length) return;
  char c = text[i];
  switch (c) {
    case 'a': case 'e': case 'i': case 'o': case 'u': c -= 'a' - 'A'; break;
    case '\t': c = ' '; break;
    case '\n': c = ';'; break;
    case 0: c = '?'; break;
  }
  text[i] = c;
}

// Levenshtein's distance of words of at most 31 letters: one thread a pair, the row in local memory.
extern "C" __global__ void distance(const char* words, int stride, const char* other, int* out, int n) {
  int w = blockIdx.x * blockDim.x + threadIdx.x;
  if (w >= n) return;
  const char* word = words + (size_t)w * stride;
  unsigned char row[32];
  int columns = 0;
  while (other[columns]) columns++;
  for (int j = 0; j <= columns; j++) row[j] = j;
  for (int i = 0; word[i]; i++) {
    unsigned char diagonal = row[0];
    row[0] = i + 1;
    for (int j = 1; j <= columns; j++) {
      unsigned char was = row[j];
      unsigned char best = diagonal + (word[i] != other[j - 1]);
      best = min(best, (unsigned char)(was + 1));
      best = min(best, (unsigned char)(row[j - 1] + 1));
      row[j] = best;
      diagonal = was;
    }
  }
  out[w] = row[columns];
}
