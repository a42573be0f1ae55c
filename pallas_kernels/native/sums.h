// Sums of far rows over edges: what `sums_ffi.cc` calls and `sums.cc` computes. Over receivers that
// is a sum or mean of neighbours, over senders its gradient, and a round of propagation either way.

#ifndef GTJAX_SUMS_H_
#define GTJAX_SUMS_H_

#include "passes.h"

namespace gtjax {

// out = factor * sum over edges of weight * keep * share * far row, plus restart * start; and if
// asked for, for each edge and head the product of the row's own with the far row, times keep and
// share: the gradient of the weight, where far rows are gradients of results.
struct Sums {
  Rows rows;
  Table far;
  const float* weights;  // [edges, heads] by position, or null
  EdgeData edges;        // its bias is not used
  const float* shares;   // a number for each far row, or null
  const float* start;    // [rows, heads, width], or null
  float factor, restart;
  bool mean;  // divided by the number of edges
  float* out;
  Table own;    // where there are dots
  float* dots;  // [edges, heads] by position, or null
  bool add;     // to what is in dots
};

struct SumPasses {
  void (*sums)(const Sums&, const Pool&);
};

}  // namespace gtjax

#endif  // GTJAX_SUMS_H_
