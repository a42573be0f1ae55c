// What every pass over the edges takes, as plain arrays. A pass is declared in a header of its own
// (`softmax.h`, `sums.h`, `extremes.h`, `propagation.h`), computed in the .cc of that name, once for
// each set of instructions it is compiled for, and called by XLA through the ..._ffi.cc.

#ifndef GTJAX_PASSES_H_
#define GTJAX_PASSES_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace gtjax {

// Compressed rows: row r has edges offsets[r] to offsets[r + 1], and columns[e] is the far end.
struct Rows {
  int64_t rows, heads, width;
  const int32_t *offsets, *columns;
};

// Rows of heads * width numbers: float32, or bfloat16 as 16-bit words.
struct Table {
  const void* data;
  bool half;
};

// Bias and dropout of single edges, looked up by their position in receiver order.
struct EdgeData {
  const float* bias;            // [edges, heads], or null
  const uint32_t* ids;          // [edges]
  const int32_t* order;         // position of each edge, or null where that is its own number
  std::vector<uint32_t> draws;  // one per head, padded to a multiple of 8; empty: nothing dropped
  uint32_t threshold;
  float kept;
};

// Other threads to share the work with.
struct Pool {
  int64_t threads;
  std::function<void(std::function<void()>)> schedule;
};

}  // namespace gtjax

#endif  // GTJAX_PASSES_H_
