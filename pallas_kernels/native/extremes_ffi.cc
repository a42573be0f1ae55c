// Extremes over edges, as XLA calls them: checks what it is given, picks the passes for this
// processor, and runs them on XLA's own thread pool. Tables are [rows, 1, width].

#include "extremes.h"

#include "handlers.h"

GTJAX_PASSES(gtjax::ExtremePasses, kExtremes)

namespace {

using namespace gtjax;

ffi::Error ExtremesOf(ffi::ThreadPool pool, ffi::AnyBuffer far, Ints offsets, Ints columns,
                      FloatsOut best, FloatsOut ties, bool largest, bool finish,
                      std::string_view instructions) {
  const ExtremePasses* passes = kExtremesIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({far})) return kDisagree;
  const Rows rows = RowsOf(far, offsets, columns);
  if (rows.heads != 1 || !HasShape(*best, {rows.rows, 1, rows.width}) ||
      !HasShape(*ties, {rows.rows, 1, rows.width})) {
    return kShapes;
  }
  passes->forward({rows, TableOf(far), largest ? 1.0f : -1.0f, finish, Fresh(best), Fresh(ties)},
                  PoolOf(pool));
  return ffi::Error::Success();
}

// Over the edges by sender: `own` is the senders' rows, `out` and `share` are the receivers'.
ffi::Error Backward(ffi::ThreadPool pool, ffi::AnyBuffer own, ffi::AnyBuffer out, Floats share,
                    Ints offsets, Ints columns, FloatsOut d_own, std::string_view instructions) {
  const ExtremePasses* passes = kExtremesIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({own, out})) return kDisagree;
  const Rows rows = RowsOf(own, offsets, columns);
  if (rows.heads != 1 || !HasShape(own, {rows.rows, 1, rows.width}) ||
      !HasShape(share, {out.dimensions()[0], 1, rows.width})) {
    return kShapes;
  }
  passes->backward({rows, TableOf(own), TableOf(out), share.typed_data(), Fresh(d_own)},
                   PoolOf(pool));
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_extremes, ExtremesOf,
                              Bind()
                                  .Arg<ffi::AnyBuffer>()  // far
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // columns
                                  .Ret<Floats>()          // best
                                  .Ret<Floats>()          // ties
                                  .Attr<bool>("largest")
                                  .Attr<bool>("finish")
                                  .Attr<std::string_view>("instructions"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_extremes_backward, Backward,
                              Bind()
                                  .Arg<ffi::AnyBuffer>()  // own
                                  .Arg<ffi::AnyBuffer>()  // out
                                  .Arg<Floats>()          // share
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // columns
                                  .Ret<Floats>()          // d_own
                                  .Attr<std::string_view>("instructions"));
