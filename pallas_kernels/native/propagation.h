// What propagation is made of besides the sums of `sums.h`: what `propagation_ffi.cc` calls and
// `propagation.cc` computes.
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
  void (*softmax_gradient)(const SoftmaxGradient&, const Pool&);
  void (*reorder)(const Reorder&, const Pool&);
};

}  // namespace gtjax

#endif  // GTJAX_PROPAGATION_H_
