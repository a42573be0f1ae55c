// Softmax attention over edges, as XLA calls it: checks what it is given, picks the passes for this
// processor, and runs them on XLA's own thread pool.
//
// `edge` is the bias of edges [edges, heads], or for GATv2 their features [edges, heads, width];
// `shared` is [heads, width] for GATv2. Arrays of no rows stand for none.

#include "softmax.h"

#include "handlers.h"

GTJAX_PASSES(gtjax::SoftmaxPasses, kSoftmax)

namespace {

using namespace gtjax;

struct Options {
  double rate, slope;
  std::string_view score, instructions;
};

// The tables of a pass and what its edges have, if all of them fit together.
struct Given {
  const SoftmaxPasses* passes;
  Rows rows;
  Scoring scoring;
  EdgeData edges;
};

// own and far are what is scored; tables are [rows, heads, width], the values first.
ffi::ErrorOr<Given> Check(const Options& options, ffi::AnyBuffer own, ffi::AnyBuffer far,
                          std::initializer_list<ffi::AnyBuffer> tables, Floats shared, Ints offsets,
                          Ints columns, Words ids, ffi::AnyBuffer edge, Words seed) {
  const SoftmaxPasses* passes = kSoftmaxIn(options.instructions);
  if (!passes) return ffi::Unexpected(kCannot);
  if (!Agree(tables)) return ffi::Unexpected(kDisagree);
  const ffi::AnyBuffer& values = *tables.begin();
  const Rows rows = RowsOf(values, offsets, columns);
  const int64_t count = columns.element_count(), heads = rows.heads, width = rows.width;
  Scoring scoring{Score::kDotProduct, static_cast<float>(options.slope), nullptr, {}};
  const float* bias = nullptr;
  const bool some = edge.element_count() > 0;
  if (options.score == "gat") {
    scoring.score = Score::kGat;
    if (!HasShape(own, {rows.rows, heads}) || !HasShape(far, {-1, heads}) ||
        own.element_type() != ffi::F32 || far.element_type() != ffi::F32) {
      return ffi::Unexpected(kShapes);
    }
  } else {
    if (options.score == "gatv2") scoring.score = Score::kGatv2;
    if (!Agree({values, own, far})) return ffi::Unexpected(kDisagree);
    if (!HasShape(own, {rows.rows, heads, width})) return ffi::Unexpected(kShapes);
  }
  if (scoring.score == Score::kGatv2) {
    if (!HasShape(shared, {heads, width})) return ffi::Unexpected(kShapes);
    scoring.shared = shared.typed_data();
    if (some && (!Agree({values, edge}) || !HasShape(edge, {count, heads, width}))) {
      return ffi::Unexpected(kShapes);
    }
    scoring.features = {some ? edge.untyped_data() : nullptr, edge.element_type() == ffi::BF16};
  } else if (some) {
    if (edge.element_type() != ffi::F32 || !HasShape(edge, {count, heads})) {
      return ffi::Unexpected(kShapes);
    }
    bias = static_cast<const float*>(edge.untyped_data());
  }
  if (!HasShape(ids, {count}) || !HasSeeds(seed, heads)) return ffi::Unexpected(kShapes);
  return Given{passes, rows, scoring, EdgeDataOf(bias, ids, seed, options.rate, heads)};
}

// The partial of every row.
ffi::Error Partial(ffi::ThreadPool pool, ffi::AnyBuffer receiver, ffi::AnyBuffer sender,
                   ffi::AnyBuffer values, Floats shared, Ints offsets, Ints senders, Words ids,
                   ffi::AnyBuffer edge, Words seed, FloatsOut max, FloatsOut sum, FloatsOut acc,
                   double rate, double slope, std::string_view score,
                   std::string_view instructions) {
  auto given = Check({rate, slope, score, instructions}, receiver, sender, {values}, shared,
                     offsets, senders, ids, edge, seed);
  if (!given) return given.error();
  given->passes->forward({given->rows, given->scoring, TableOf(receiver), TableOf(sender),
                          TableOf(values), given->edges, false, Fresh(acc), max->typed_data(),
                          sum->typed_data()},
                         PoolOf(pool));
  return ffi::Error::Success();
}

// The finished output and its lse: what is left of the partial when there is nothing to merge.
ffi::Error Whole(ffi::ThreadPool pool, ffi::AnyBuffer receiver, ffi::AnyBuffer sender,
                 ffi::AnyBuffer values, Floats shared, Ints offsets, Ints senders, Words ids,
                 ffi::AnyBuffer edge, Words seed, FloatsOut out, FloatsOut lse, double rate,
                 double slope, std::string_view score, std::string_view instructions) {
  auto given = Check({rate, slope, score, instructions}, receiver, sender, {values}, shared,
                     offsets, senders, ids, edge, seed);
  if (!given) return given.error();
  given->passes->forward({given->rows, given->scoring, TableOf(receiver), TableOf(sender),
                          TableOf(values), given->edges, true, Fresh(out), lse->typed_data(),
                          nullptr},
                         PoolOf(pool));
  return ffi::Error::Success();
}

ffi::Error Receivers(ffi::ThreadPool pool, ffi::AnyBuffer receiver, ffi::AnyBuffer sender,
                     ffi::AnyBuffer values, Floats shared, Ints offsets, Ints senders, Words ids,
                     ffi::AnyBuffer edge, Words seed, ffi::AnyBuffer dout, Floats out, Floats lse,
                     FloatsOut d_receiver, FloatsOut stats, FloatsOut d_edge, FloatsOut d_shared,
                     double rate, double slope, std::string_view score,
                     std::string_view instructions) {
  auto given = Check({rate, slope, score, instructions}, receiver, sender, {values, dout}, shared,
                     offsets, senders, ids, edge, seed);
  if (!given) return given.error();
  const Rows& rows = given->rows;
  if (!HasShape(dout, {rows.rows, rows.heads, rows.width}) ||
      !HasShape(out, {rows.rows, rows.heads, rows.width}) ||
      !HasShape(lse, {rows.rows, rows.heads}) || d_edge->element_count() != edge.element_count()) {
    return kShapes;
  }
  const bool features = given->scoring.score == Score::kGatv2;
  float* d_edges = edge.element_count() ? Fresh(d_edge) : nullptr;
  ZeroPadding(d_edge, rows, features ? rows.heads * rows.width : rows.heads);
  given->passes->backward_receivers(
      {rows, given->scoring, TableOf(receiver), TableOf(sender), TableOf(values), TableOf(dout),
       given->edges, out.typed_data(), lse.typed_data(), Fresh(d_receiver), stats->typed_data(),
       d_edges, features ? d_shared->typed_data() : nullptr},
      PoolOf(pool));
  return ffi::Error::Success();
}

// Offsets and receivers are of the edges sorted by sender; `order` has their positions in
// receiver order. d_values is not written where the values are the senders' rows themselves.
ffi::Error Senders(ffi::ThreadPool pool, ffi::AnyBuffer receiver, ffi::AnyBuffer sender,
                   ffi::AnyBuffer values, Floats shared, Ints offsets, Ints receivers, Words ids,
                   ffi::AnyBuffer edge, Words seed, ffi::AnyBuffer dout, Floats stats, Ints order,
                   FloatsOut d_sender, FloatsOut d_values, double rate, double slope,
                   std::string_view score, std::string_view instructions) {
  auto given = Check({rate, slope, score, instructions}, sender, receiver, {values, dout}, shared,
                     offsets, receivers, ids, edge, seed);
  if (!given) return given.error();
  const Rows& rows = given->rows;
  const int64_t far_rows = receiver.dimensions()[0];
  if (!HasShape(values, {rows.rows, rows.heads, rows.width}) ||
      !HasShape(dout, {far_rows, rows.heads, rows.width}) ||
      !HasShape(stats, {far_rows, 2, rows.heads}) ||
      !HasShape(order, {static_cast<int64_t>(receivers.element_count())})) {
    return kShapes;
  }
  if (edge.element_count() || !given->edges.draws.empty()) {
    given->edges.order = order.typed_data();
  }
  given->passes->backward_senders(
      {rows, given->scoring, TableOf(sender), TableOf(receiver), TableOf(values), TableOf(dout),
       given->edges, stats.typed_data(), Fresh(d_sender), Fresh(d_values)},
      PoolOf(pool));
  return ffi::Error::Success();
}

// `other` is a second table to read, or has no rows.
ffi::Error GatherRows(ffi::ThreadPool pool, ffi::AnyBuffer table, ffi::AnyBuffer other, Ints offsets,
                  Ints senders, FloatsOut sums) {
  if (!Agree({table, other})) return kDisagree;
  std::vector<Table> tables{TableOf(table)};
  if (other.element_count()) tables.push_back(TableOf(other));
  kSoftmaxIn("best")->gather({RowsOf(table, offsets, senders), tables, sums->typed_data()},
                             PoolOf(pool));
  return ffi::Error::Success();
}

auto BindEdges() {
  return Bind()
      .Arg<ffi::AnyBuffer>()  // receiver
      .Arg<ffi::AnyBuffer>()  // sender
      .Arg<ffi::AnyBuffer>()  // values
      .Arg<Floats>()          // shared
      .Arg<Ints>()            // offsets
      .Arg<Ints>()            // columns
      .Arg<Words>()           // ids
      .Arg<ffi::AnyBuffer>()  // edge
      .Arg<Words>();          // seed
}

template <typename Binding>
auto BindOptions(Binding&& binding) {
  return std::move(binding)
      .template Attr<double>("rate")
      .template Attr<double>("slope")
      .template Attr<std::string_view>("score")
      .template Attr<std::string_view>("instructions");
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_softmax_partial, Partial,
                              BindOptions(BindEdges()
                                              .Ret<Floats>()     // max
                                              .Ret<Floats>()     // sum
                                              .Ret<Floats>()));  // acc

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_softmax, Whole,
                              BindOptions(BindEdges()
                                              .Ret<Floats>()     // out
                                              .Ret<Floats>()));  // lse

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_softmax_backward_receivers, Receivers,
                              BindOptions(BindEdges()
                                              .Arg<ffi::AnyBuffer>()  // dout
                                              .Arg<Floats>()          // out
                                              .Arg<Floats>()          // lse
                                              .Ret<Floats>()          // d_receiver
                                              .Ret<Floats>()          // stats
                                              .Ret<Floats>()          // d_edge
                                              .Ret<Floats>()));       // d_shared

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_softmax_backward_senders, Senders,
                              BindOptions(BindEdges()
                                              .Arg<ffi::AnyBuffer>()  // dout
                                              .Arg<Floats>()          // stats
                                              .Arg<Ints>()            // order
                                              .Ret<Floats>()          // d_sender
                                              .Ret<Floats>()));       // d_values

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_gather, GatherRows,
                              Bind()
                                  .Arg<ffi::AnyBuffer>()  // table
                                  .Arg<ffi::AnyBuffer>()  // other
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // senders
                                  .Ret<Floats>());        // sums
