// Sums over edges, as XLA calls them: checks what it is given, picks the pass for this processor, and
// runs it on XLA's own thread pool. Arrays of no rows stand for none.

#include "sums.h"

#include "handlers.h"

GTJAX_PASSES(gtjax::SumPasses, kSums)

namespace {

using namespace gtjax;

// `order` has the positions of edges in receiver order, where they come in another; `before` is the
// memory of `dots`, where they are to be added to it.
ffi::Error SumsOf(ffi::ThreadPool pool, Floats before, Floats weights, ffi::AnyBuffer far,
                  ffi::AnyBuffer own, Ints offsets, Ints columns, Ints order, Words ids, Words seed,
                  Floats shares, Floats start, FloatsOut dots, FloatsOut out, double factor,
                  double restart, double rate, bool mean, std::string_view instructions) {
  const SumPasses* passes = kSumsIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({far, own})) return kDisagree;
  Rows rows = RowsOf(far, offsets, columns);
  const int64_t count = columns.element_count(), heads = rows.heads, width = rows.width;
  const bool with_dots = dots->element_count() > 0;
  if (!HasShapeOrNone(before, {count, heads}) || !HasShapeOrNone(weights, {count, heads}) ||
      !HasShapeOrNone(own, {rows.rows, heads, width}) || !HasShapeOrNone(order, {count}) ||
      !HasShape(ids, {count}) || !HasSeeds(seed, heads) ||
      !HasShapeOrNone(shares, {far.dimensions()[0]}) ||
      !HasShapeOrNone(start, {rows.rows, heads, width}) ||
      !HasShapeOrNone(*dots, {count, heads}) || !HasShape(*out, {rows.rows, heads, width}) ||
      (with_dots && rows.rows > 0 && own.element_count() == 0)) {
    return kShapes;
  }
  const bool add = before.element_count() > 0;
  if (add && before.typed_data() != dots->typed_data()) {
    return ffi::Error::InvalidArgument("what dots are added to is their own memory");
  }
  EdgeData edges = EdgeDataOf(nullptr, ids, seed, rate, heads);
  if (order.element_count()) edges.order = order.typed_data();
  if (with_dots && !add) ZeroPadding(dots, rows, heads);
  if (weights.element_count() == 0 && rate <= 0 && !with_dots) {  // heads make no difference
    rows.heads = 1;
    rows.width = heads * width;
  }
  passes->sums({rows, TableOf(far), DataOrNull(weights), edges, DataOrNull(shares),
                DataOrNull(start), static_cast<float>(factor), static_cast<float>(restart), mean,
                Fresh(out), TableOf(own), with_dots ? dots->typed_data() : nullptr, add},
               PoolOf(pool));
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_sums, SumsOf,
                              Bind()
                                  .Arg<Floats>()          // before
                                  .Arg<Floats>()          // weights
                                  .Arg<ffi::AnyBuffer>()  // far
                                  .Arg<ffi::AnyBuffer>()  // own
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // columns
                                  .Arg<Ints>()            // order
                                  .Arg<Words>()           // ids
                                  .Arg<Words>()           // seed
                                  .Arg<Floats>()          // shares
                                  .Arg<Floats>()          // start
                                  .Ret<Floats>()          // dots
                                  .Ret<Floats>()          // out
                                  .Attr<double>("factor")
                                  .Attr<double>("restart")
                                  .Attr<double>("rate")
                                  .Attr<bool>("mean")
                                  .Attr<std::string_view>("instructions"));
