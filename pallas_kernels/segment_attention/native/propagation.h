// The passes that propagation is made of, as plain arrays: what `propagation_ffi.cc` calls and
// `propagation.cc` computes, once for each set of instructions it is compiled for.
//
// Arrays [edges, heads] are in the order of the rows they are used with. Weights of a softmax are
// negative where dropout takes them away: their size is what the gradient needs.

#ifndef GTJAX_PROPAGATION_H_
#define GTJAX_PROPAGATION_H_

#include "passes.h"

namespace gtjax {

// Over receivers: the softmax of each row.
struct SoftmaxWeights {
  Rows rows;
  Table q, k;
  EdgeData edges;
  float* weights;
};

// Over any rows: out = factor * sum of weights times far rows, plus restart * start.
struct WeightedSum {
  Rows rows;
  const float* weights;
  Table x;
  const float* start;  // [rows, heads, width], or null
  float factor, restart;
  float* out;
};

// Over senders: the same sum over y, and for each edge the product of its own row of x with the
// far row of y, added to what is in `dots`.
struct WeightedSumAndDots {
  Rows rows;
  const float* weights;
  Table x, y;
  float factor;
  float *out, *dots;
};

// Over receivers: from the gradients of weights to those of logits. Weights were multiplied by
// `kept` where not dropped, and their gradients are yet to be multiplied by `factor`.
struct SoftmaxGradient {
  Rows rows;
  const float *weights, *dweights;
  float kept, factor;
  float* dlogits;
};

// Over the rows that `order` goes with: to[e] = from[order[e]], or back: to[order[e]] = from[e].
struct Reorder {
  Rows rows;
  const int32_t* order;
  const float* from;
  bool back;
  float* to;
};

struct PropagationPasses {
  void (*softmax_weights)(const SoftmaxWeights&, const Pool&);
  void (*weighted_sum)(const WeightedSum&, const Pool&);
  void (*weighted_sum_and_dots)(const WeightedSumAndDots&, const Pool&);
  void (*softmax_gradient)(const SoftmaxGradient&, const Pool&);
  void (*reorder)(const Reorder&, const Pool&);
};

}  // namespace gtjax

#endif  // GTJAX_PROPAGATION_H_
