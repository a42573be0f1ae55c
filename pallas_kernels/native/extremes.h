// The largest or smallest of far rows over edges, channel by channel: what `extremes_ffi.cc` calls
// and `extremes.cc` computes. Rows have one head.

#ifndef GTJAX_EXTREMES_H_
#define GTJAX_EXTREMES_H_

#include "passes.h"

namespace gtjax {

// Over receivers: the largest of sign * far row, and on how many edges it is.
struct Extremes {
  Rows rows;
  Table far;
  float sign;
  bool finish;  // times sign again, and 0 where there is no edge
  float *best, *ties;
};

// Over senders: a share of every receiver's gradient where the row has its extreme.
struct ExtremesBackward {
  Rows rows;
  Table own, out;      // out is the far ends'
  const float* share;  // of one edge in the gradient, of the far ends
  float* d_own;
};

struct ExtremePasses {
  void (*forward)(const Extremes&, const Pool&);
  void (*backward)(const ExtremesBackward&, const Pool&);
};

}  // namespace gtjax

#endif  // GTJAX_EXTREMES_H_
