// Shares rows of very different lengths over threads, in pieces of about equal numbers of edges.
//
// A long row may lie in several pieces: each computes the row's state over its own edges, and the
// states are merged at the end, in order. Where pieces begin and end depends on the graph alone, so
// results do not depend on the number of threads.

#ifndef GTJAX_PIECES_H_
#define GTJAX_PIECES_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "passes.h"

namespace GTJAX_VARIANT {

constexpr int64_t kPieces = 64;
constexpr int64_t kSmallestPiece = 2048;  // edges and rows; less is not worth a thread's waking
constexpr int64_t kLongRow = 1024;        // edges; shorter rows stay in one piece

// A place among the edges: in front of edge `edge` of row `row`.
struct Place {
  int64_t row, edge;
};

inline Place PieceStart(const gtjax::Rows& rows, int64_t piece, int64_t pieces) {
  const int32_t* off = rows.offsets;
  if (piece == pieces) return {rows.rows, off[rows.rows]};
  const int64_t wanted = (off[rows.rows] + rows.rows) * piece / pieces;
  int64_t low = 0, high = rows.rows;  // the first row that begins at or after the wanted place
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (off[middle] + middle < wanted) low = middle + 1; else high = middle;
  }
  const int64_t before = low - 1;
  if (before >= 0 && off[low] - off[before] > kLongRow) {
    const int64_t edge = std::max<int64_t>(wanted - before, off[before]);
    if (edge < off[low]) return {before, edge};
  }
  return {low, off[low]};
}

// pass.EndPiece(piece, scratch), if it has such a function.
template <typename Pass>
auto EndPiece(const Pass& pass, int64_t piece, typename Pass::Scratch& scratch, int)
    -> decltype(pass.EndPiece(piece, scratch)) {
  pass.EndPiece(piece, scratch);
}
template <typename Pass>
void EndPiece(const Pass&, int64_t, typename Pass::Scratch&, long) {}

// Runs pass.Row(row, first, last, state, scratch) over all rows, then pass.Write(row, state).
// A pass has `state_size()` floats of state, merged by Add(from, into), and its own Scratch, one
// for each piece: EndPiece takes what is left in it.
template <typename Pass>
void RunInPieces(const Pass& pass, const gtjax::Rows& rows, const gtjax::Pool& pool) {
  struct Fragment {
    int64_t row;
    std::vector<float> state;
  };
  const int32_t* off = rows.offsets;
  const int64_t pieces =
      std::clamp<int64_t>((off[rows.rows] + rows.rows) / kSmallestPiece, 1, kPieces);
  std::vector<std::vector<Fragment>> fragments(pieces);
  auto run = [&](int64_t piece) {
    const Place from = PieceStart(rows, piece, pieces), to = PieceStart(rows, piece + 1, pieces);
    typename Pass::Scratch scratch(pass);
    std::vector<float> state(pass.state_size() + 16);
    float* aligned = state.data() + (-(reinterpret_cast<uintptr_t>(state.data()) / 4) & 15);
    for (int64_t r = from.row; r < rows.rows && (r < to.row || off[r] < to.edge); ++r) {
      const int64_t first = r == from.row ? from.edge : off[r];
      const int64_t last = r == to.row ? to.edge : off[r + 1];
      pass.Row(r, first, last, aligned, scratch);
      if (first == off[r] && last == off[r + 1]) {
        pass.Write(r, aligned);
      } else {
        fragments[piece].push_back({r, {aligned, aligned + pass.state_size()}});
      }
    }
    EndPiece(pass, piece, scratch, 0);
  };
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
  };
  auto shared = std::make_shared<Shared>();
  // The caller takes pieces too, so that it gets on even if all other threads are busy. A thread
  // that comes late finds no piece left and touches nothing but `shared`.
  auto take = [shared, pieces, &run] {
    for (int64_t piece; (piece = shared->next.fetch_add(1)) < pieces;) {
      run(piece);
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  for (int64_t i = 1; i < std::min(pool.threads, pieces); ++i) pool.schedule(take);
  take();
  while (shared->done.load(std::memory_order_acquire) < pieces) std::this_thread::yield();

  Fragment* whole = nullptr;
  for (auto& of_piece : fragments) {
    for (auto& fragment : of_piece) {
      if (whole && whole->row == fragment.row) {
        pass.Add(fragment.state.data(), whole->state.data());
        continue;
      }
      if (whole) pass.Write(whole->row, whole->state.data());
      whole = &fragment;
    }
  }
  if (whole) pass.Write(whole->row, whole->state.data());
}

}  // namespace GTJAX_VARIANT

#endif  // GTJAX_PIECES_H_
