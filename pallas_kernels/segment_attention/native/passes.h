// The three passes over the edges that attention is made of, as plain arrays: what `ffi.cc` calls
// and `passes.cc` computes, once for each set of instructions it is compiled for.

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

// Over receivers: softmax of a row. finish: out and lse; otherwise the partial (max, sum, acc).
struct Forward {
  Rows rows;
  Table q, k, v;
  EdgeData edges;
  bool finish;
  float *acc, *max, *sum;  // max holds lse if finish, and sum is not written
};

// Over receivers: dq, dbias, and for the other pass lse and sum_j p_ij dp_ij, side by side.
struct BackwardReceivers {
  Rows rows;
  Table q, k, v, dout;
  EdgeData edges;
  const float *out, *lse;
  float *dq, *stats, *dbias;  // stats: [rows, 2, heads]; dbias may be null
};

// Over senders: dk and dv.
struct BackwardSenders {
  Rows rows;
  Table q, k, v, dout;
  EdgeData edges;
  const float* stats;
  float *dk, *dv;
};

// Over receivers: reads every row of k and v that attention reads, and does nothing else with it
// but add it up. What this takes is the least that a fused pass can take.
struct Gather {
  Rows rows;
  Table k, v;
  float* sums;  // [rows]
};

struct Passes {
  void (*forward)(const Forward&, const Pool&);
  void (*backward_receivers)(const BackwardReceivers&, const Pool&);
  void (*backward_senders)(const BackwardSenders&, const Pool&);
  void (*gather)(const Gather&, const Pool&);
};

}  // namespace gtjax

#endif  // GTJAX_PASSES_H_
