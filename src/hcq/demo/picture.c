/* The kernels of `hcq demo` in C, for every device that takes C. A picture is three planes (red, green, blue) of
 * width * height bytes, one after another; luma, edges and tables are described where they are used.
 *
 * The host puts RADIUS and WEIGHTS (2 * RADIUS + 1 whole numbers whose sum is 256) in front of this text. A work-group
 * takes a band of rows or a range of pixels; its inner loops run along a row, so that they vectorise.
 */
#include <hcq.h>
#include <stdint.h>

/* Before a loop whose iterations touch nothing of one another, which the compiler can't always see. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

enum { TAPS = 2 * RADIUS + 1, TILE = 1024, BINS = 256 };

static const uint16_t weights[TAPS] = {WEIGHTS};

static inline int smaller(int a, int b) { return a < b ? a : b; }
static inline int larger(int a, int b) { return a > b ? a : b; }

/* Position -1 is 0 again, -2 is 1, and so on: SciPy's mode 'reflect'. Pictures are wider and higher than RADIUS. */
static inline int reflect(int at, int size) { return at < 0 ? -1 - at : at >= size ? 2 * size - 1 - at : at; }

/* Gaussian blur, separable: down the columns into a line of local memory, then along that line. One group takes `rows`
 * rows of one plane. Sums stay below 2^24, so float arithmetic on these whole numbers is exact in any order. */
HCQ_KERNEL void blur(uint8_t *restrict blurred, const uint8_t *restrict picture, int width, int height, int rows) {
  HCQ_LOCAL float line[TILE + 2 * RADIUS];
  const int64_t plane = (int64_t)hcq_group_id(1) * width * height;
  const int first = (int)hcq_group_id(0) * rows, last = smaller(first + rows, height);
  for (int x0 = 0; x0 < width; x0 += TILE) {
    const int size = smaller(TILE, width - x0);
    /* line[i] belongs to column x0 - RADIUS + i of the picture; those from `inside` to `outside` exist. */
    const int inside = larger(RADIUS - x0, 0), outside = smaller(size + 2 * RADIUS, width - x0 + RADIUS);
    for (int y = first; y < last; y++) {
      const uint8_t *source[TAPS];
      for (int k = 0; k < TAPS; k++)
        source[k] = picture + plane + (int64_t)reflect(y + k - RADIUS, height) * width + (x0 - RADIUS + inside);
      INDEPENDENT
      for (int i = 0; i < outside - inside; i++) {
        uint16_t sum = (uint16_t)(weights[RADIUS] * source[RADIUS][i]); /* all of it is at most 255 * 256 */
        for (int k = 0; k < RADIUS; k++)
          sum = (uint16_t)(sum + weights[k] * (uint16_t)(source[k][i] + source[TAPS - 1 - k][i]));
        line[inside + i] = sum;
      }
      for (int i = 0; i < inside; i++) line[i] = line[2 * inside - 1 - i];
      for (int i = outside; i < size + 2 * RADIUS; i++) line[i] = line[2 * outside - 1 - i];
      uint8_t *row = blurred + plane + (int64_t)y * width + x0;
      INDEPENDENT
      for (int i = 0; i < size; i++) {
        float sum = 32768; /* a half, to round */
        for (int k = 0; k < TAPS; k++) sum += (float)weights[k] * line[i + k];
        row[i] = (uint8_t)((int)sum >> 16);
      }
    }
  }
}

/* Brightness: 0.299 red + 0.587 green + 0.114 blue in 256ths. One group takes `count` pixels of `pixels`. */
HCQ_KERNEL void luma(uint8_t *restrict bright, const uint8_t *restrict picture, int pixels, int count) {
  const int first = (int)hcq_group_id(0) * count, last = smaller(first + count, pixels);
  const uint8_t *red = picture, *green = picture + pixels, *blue = picture + 2 * (int64_t)pixels;
  for (int i = first; i < last; i++) bright[i] = (uint8_t)((77 * red[i] + 150 * green[i] + 29 * blue[i] + 128) >> 8);
}

/* The length of a gradient, rounded, at most 255. */
static inline uint8_t length(int across, int down) {
  return (uint8_t)smaller((int)(__builtin_sqrtf((float)(across * across + down * down)) + 0.5f), 255);
}

/* Sobel at column x of a row; `left` and `right` are the columns beside it. */
static inline uint8_t gradient(const uint8_t *above, const uint8_t *here, const uint8_t *below, int left, int x, int right) {
  return length(above[right] + 2 * here[right] + below[right] - above[left] - 2 * here[left] - below[left],
                below[left] + 2 * below[x] + below[right] - above[left] - 2 * above[x] - above[right]);
}

static inline const uint8_t *unrelated(const uint8_t *pointer) {
  __asm__("" : "+r"(pointer));
  return pointer;
}

/* Edges: that of every pixel; beyond the border stands what is at it. One group takes `rows` rows. */
HCQ_KERNEL void edges(uint8_t *restrict edge, const uint8_t *restrict bright, int width, int height, int rows) {
  const int first = (int)hcq_group_id(0) * rows, last = smaller(first + rows, height);
  for (int y = first; y < last; y++) {
    const uint8_t *here = bright + (int64_t)y * width;
    const uint8_t *above = y > 0 ? here - width : here, *below = y < height - 1 ? here + width : here;
    uint8_t *row = edge + (int64_t)y * width;
    row[0] = gradient(above, here, below, 0, 0, smaller(1, width - 1));
    row[width - 1] = gradient(above, here, below, larger(width - 2, 0), width - 1, width - 1);
    /* Neighbours through pointers of which the compiler doesn't know that they are neighbours: else it carries what it
     * loaded from pixel to pixel, and older compilers can't vectorise that. */
    const uint8_t *above_left = unrelated(above), *above_right = unrelated(above + 2);
    const uint8_t *left = unrelated(here), *right = unrelated(here + 2);
    const uint8_t *below_left = unrelated(below), *below_right = unrelated(below + 2);
    INDEPENDENT
    for (int i = 0; i < width - 2; i++)
      row[i + 1] = length(above_right[i] + 2 * right[i] + below_right[i] - above_left[i] - 2 * left[i] - below_left[i],
                          below_left[i] + 2 * below[i + 1] + below_right[i] - above_left[i] - 2 * above[i + 1] - above_right[i]);
  }
}

/* How often each brightness occurs, group by group: counts[group * 256 + value]. Four tables side by side, because
 * neighbours are often equal and would wait for one another. One group takes `count` pixels of `pixels`. */
HCQ_KERNEL void histogram(uint32_t *restrict counts, const uint8_t *restrict bright, int pixels, int count) {
  HCQ_LOCAL uint32_t table[4 * BINS];
  const int first = (int)hcq_group_id(0) * count, last = smaller(first + count, pixels);
  for (int i = 0; i < 4 * BINS; i++) table[i] = 0;
  int i = first;
  for (; i + 4 <= last; i += 4)
    for (int k = 0; k < 4; k++) table[k * BINS + bright[i + k]]++;
  for (; i < last; i++) table[bright[i]]++;
  uint32_t *mine = counts + (int64_t)hcq_group_id(0) * BINS;
  for (int i = 0; i < BINS; i++) mine[i] = table[i] + table[BINS + i] + table[2 * BINS + i] + table[3 * BINS + i];
}

/* What equalising adds to each brightness: shift[value], from the counts of `groups` groups over `pixels` pixels. One
 * group of 256 work-items, one a brightness: a running sum in local memory, in eight steps with barriers between. */
HCQ_KERNEL void equalising_table(int32_t *restrict shift, const uint32_t *restrict counts, int groups, int pixels) {
  HCQ_LOCAL uint32_t sums[2][BINS];
  HCQ_LOCAL uint32_t darkest[BINS];
  const int value = (int)hcq_local_id(0);
  uint32_t mine = 0;
  for (int group = 0; group < groups; group++) mine += counts[(int64_t)group * BINS + value];
  sums[0][value] = mine;
  darkest[value] = mine ? (uint32_t)value : BINS - 1;
  hcq_barrier();
  int now = 0;
  for (int step = 1; step < BINS; step *= 2) {
    sums[1 - now][value] = sums[now][value] + (value >= step ? sums[now][value - step] : 0);
    if (value % (2 * step) == 0) darkest[value] = (uint32_t)smaller((int)darkest[value], (int)darkest[value + step]);
    now = 1 - now;
    hcq_barrier();
  }
  const uint64_t below = sums[now][darkest[0]], spread = (uint64_t)pixels - below;
  const uint64_t upto = sums[now][value] > below ? sums[now][value] - below : 0;
  shift[value] = spread ? (int32_t)((upto * 255 + spread / 2) / spread) - value : 0;
}

/* Equalised picture: every colour of a pixel moves by what its brightness moves. One group takes `count` pixels. */
HCQ_KERNEL void equalise(uint8_t *restrict equalised, const uint8_t *restrict picture, const uint8_t *restrict bright,
                         const int32_t *restrict shift, int pixels, int count) {
  const int first = (int)hcq_group_id(0) * count, last = smaller(first + count, pixels);
  for (int i = first; i < last; i++) {
    const int by = shift[bright[i]];
    for (int plane = 0; plane < 3; plane++) {
      const int64_t at = plane * (int64_t)pixels + i;
      equalised[at] = (uint8_t)smaller(larger(picture[at] + by, 0), 255);
    }
  }
}

/* a = b + scalar * c, over `size` floats: what a kernel gets out of this memory at best. A group takes `count`. */
HCQ_KERNEL void triad(float *restrict a, const float *restrict b, const float *restrict c, float scalar, int size, int count) {
  const int64_t first = (int64_t)hcq_group_id(0) * count, end = first + count, last = end < size ? end : size;
  for (int64_t i = first; i < last; i++) a[i] = b[i] + scalar * c[i];
}
