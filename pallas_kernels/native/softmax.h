// Softmax attention over edges, whatever scores them: what `softmax_ffi.cc` calls and `softmax.cc`
// computes. Scores are the same from both ends of an edge, so a pass speaks of its `own` rows and of
// the `far` ends of their edges, and is told which of them are the receivers.

#ifndef GTJAX_SOFTMAX_H_
#define GTJAX_SOFTMAX_H_

#include "passes.h"

namespace gtjax {

enum class Score {
  kDotProduct,  // own . far / sqrt(width) + bias: rows [heads, width]
  kGat,         // leaky_relu(own + far + bias): rows [heads], float32
  kGatv2,       // shared . leaky_relu(own + far + feature): rows [heads, width], also the values
};

struct Scoring {
  Score score;
  float slope;          // of leaky_relu where it is negative
  const float* shared;  // [heads, width], of GATv2
  Table features;       // [edges, heads, width] by position, of GATv2; may be null
};

// Over receivers: softmax of a row. finish: out and lse; otherwise the partial (max, sum, acc).
struct Forward {
  Rows rows;
  Scoring scoring;
  Table own, far, values;  // values are the far ends'
  EdgeData edges;
  bool finish;
  float *acc, *max, *sum;  // max holds lse if finish, and sum is not written
};

// Over receivers: their gradients, those of edges and of what is shared, and for the other pass lse
// and sum_j p_ij dp_ij, side by side.
struct BackwardReceivers {
  Rows rows;
  Scoring scoring;
  Table own, far, values, dout;
  EdgeData edges;
  const float *out, *lse;
  float *d_own, *stats;      // stats: [rows, 2, heads]
  float *d_edge, *d_shared;  // of bias or features, by position, and of shared; each may be null
};

// Over senders: their gradients.
struct BackwardSenders {
  Rows rows;
  Scoring scoring;
  Table own, far, values, dout;  // values are the rows' own, dout is the far ends'
  EdgeData edges;
  const float* stats;
  float *d_own, *d_values;  // one and the same for GATv2
};

// Over receivers: reads every row of tables that a pass reads, and does nothing else with it but
// add it up. What this takes is the least that a fused pass can take.
struct Gather {
  Rows rows;
  std::vector<Table> tables;  // one or two
  float* sums;  // [rows]
};

struct SoftmaxPasses {
  void (*forward)(const Forward&, const Pool&);
  void (*backward_receivers)(const BackwardReceivers&, const Pool&);
  void (*backward_senders)(const BackwardSenders&, const Pool&);
  void (*gather)(const Gather&, const Pool&);
};

}  // namespace gtjax

#endif  // GTJAX_SOFTMAX_H_
