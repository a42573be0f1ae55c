// Draws of neighbourhoods, and gathers of rows: the part of sampled batches that a processor feels.
//
// Called through ctypes, which lets go of Python's lock, by as many threads as wanted: each call works
// on one batch with marks of its own. What is drawn is a function of (seed, step, hop, node) alone.
// `sampler.py` has the same in numpy, which tests hold this to, and checks all that comes in here.

#include <cstdint>
#include <cstring>

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
constexpr int64_t kBlock = 64;   // nodes whose draws are looked up together
constexpr int64_t kAhead = 24;   // marks fetched before they are needed
constexpr int64_t kEverything = -1;

inline uint64_t Mix(uint64_t x) {  // splitmix64's finaliser (Steele, Lea and Flood 2014)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// The hash times a count below 2^32, over 2^64: a number below the count, uniform to 2^-32.
inline uint32_t Below(uint64_t hash, uint64_t count) {
  return static_cast<uint32_t>(((hash >> 32) * count + (((hash & 0xFFFFFFFFull) * count) >> 32)) >> 32);
}

// Which row of the hop a node has: valid where the tag is that of the hop.
struct Mark {
  uint32_t tag;
  int32_t row;
};

template <typename Node>
struct Call {
  const int64_t* offsets;
  const Node* neighbours;
  int64_t num_nodes;
  const int64_t* fan_outs;  // of each hop; -1: everything
  int64_t hops;
  uint64_t seed, step;
  const int64_t* row_starts;   // [hops + 2]: of each hop, and the end
  const int64_t* edge_bounds;  // [hops]: of all edges up to and including the hop
  Mark* marks;
  uint32_t tag;
  // What comes out.
  int64_t* nodes;        // [rows], -1 for padding
  int32_t* row_offsets;  // [rows + 1]
  int32_t* senders;      // [edges]
  int64_t* positions;    // [edges], in the graph's list of edges by receiver
  int32_t* sender_offsets;
  int32_t* receivers_by_sender;
  int32_t* sender_order;
  int64_t* degrees;  // [rows]: edges in the graph
  int64_t* counts;   // [2 hops + 1]: nodes of each hop, then edges of each
};

// Floyd's sample of `wanted` of `degree` places without replacement, each subset as likely.
inline void Choose(uint64_t key, int64_t start, int64_t degree, int64_t wanted, int64_t* out) {
  for (int64_t slot = 0; slot < wanted; ++slot) {
    const int64_t last = degree - wanted + slot;
    int64_t place = start + Below(Mix(key + static_cast<uint64_t>(slot + 1) * kGolden), last + 1);
    for (int64_t i = 0; i < slot; ++i) {
      if (out[i] == place) {
        place = start + last;
        break;
      }
    }
    out[slot] = place;
  }
}

// Returns 0; h + 1 if hop h does not fit, `counts` then holding what it needs; -1 if the graph has
// a neighbour that is no node.
template <typename Node>
int64_t Sample(const Call<Node>& call) {
  int64_t count = call.counts[0];  // of the hop's nodes
  int64_t edges = 0;
  const int64_t rows = call.row_starts[call.hops + 1];
  std::memset(call.sender_offsets, 0, sizeof(int32_t) * (rows + 1));
  call.row_offsets[0] = 0;
  for (int64_t hop = 0; hop <= call.hops; ++hop) {
    const int64_t first = call.row_starts[hop], end = call.row_starts[hop + 1];
    const int64_t* frontier = call.nodes + first;
    const int64_t before = edges;
    const bool draws = hop < call.hops;
    const int64_t fan_out = draws ? call.fan_outs[hop] : 0;
    const uint64_t hop_key = Mix(Mix(Mix(call.seed + kGolden) ^ (call.step + kGolden)) ^ (hop + kGolden));
    const int64_t most = draws ? call.edge_bounds[hop] : 0;
    for (int64_t i = 0; i < (count < kBlock ? count : kBlock); ++i) {
      __builtin_prefetch(call.offsets + frontier[i]);
    }
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t stop = begin + kBlock < count ? begin + kBlock : count;
      for (int64_t i = stop; i < (stop + kBlock < count ? stop + kBlock : count); ++i) {
        __builtin_prefetch(call.offsets + frontier[i]);
      }
      const int64_t block_edges = edges;
      for (int64_t i = begin; i < stop; ++i) {
        const int64_t node = frontier[i], start = call.offsets[node];
        const int64_t degree = call.offsets[node + 1] - start;
        call.degrees[first + i] = degree;
        if (draws) {
          const bool all = fan_out == kEverything || degree <= fan_out;
          const int64_t wanted = all ? degree : fan_out;
          if (edges + wanted > most) {  // count on, to say how many it would be
            for (int64_t j = i; j < count; ++j) {
              const int64_t d = call.offsets[frontier[j] + 1] - call.offsets[frontier[j]];
              edges += fan_out == kEverything || d <= fan_out ? d : fan_out;
            }
            call.counts[call.hops + 1 + hop] = edges - before;
            return hop + 1;
          }
          int64_t* out = call.positions + edges;
          if (all) {
            for (int64_t j = 0; j < degree; ++j) out[j] = start + j;
          } else {
            Choose(Mix(hop_key ^ (static_cast<uint64_t>(node) * kGolden)), start, degree, wanted, out);
          }
          for (int64_t j = 0; j < wanted; j += all ? 64 / sizeof(Node) : 1) {
            __builtin_prefetch(call.neighbours + out[j]);
          }
          edges += wanted;
        }
        call.row_offsets[first + i + 1] = static_cast<int32_t>(edges);
      }
      for (int64_t e = block_edges; e < edges; ++e) {
        const int64_t sender = call.neighbours[call.positions[e]];
        if (sender < 0 || sender >= call.num_nodes) return -1;  // a file that was changed meanwhile
        call.senders[e] = static_cast<int32_t>(sender);
      }
    }
    for (int64_t row = first + count; row < end; ++row) {  // padding
      call.nodes[row] = -1;
      call.degrees[row] = 0;
      call.row_offsets[row + 1] = static_cast<int32_t>(edges);
    }
    if (!draws) break;
    call.counts[call.hops + 1 + hop] = edges - before;
    // Number the senders in the order in which they are met.
    const int64_t next = call.row_starts[hop + 1], room = call.row_starts[hop + 2] - next;
    const uint32_t tag = call.tag + static_cast<uint32_t>(hop);
    int64_t met = 0;
    for (int64_t e = before; e < (before + kAhead < edges ? before + kAhead : edges); ++e) {
      __builtin_prefetch(call.marks + call.senders[e], 1);
    }
    for (int64_t e = before; e < edges; ++e) {
      if (e + kAhead < edges) __builtin_prefetch(call.marks + call.senders[e + kAhead], 1);
      const int32_t node = call.senders[e];
      Mark& mark = call.marks[node];
      if (mark.tag != tag) {
        mark.tag = tag;
        mark.row = static_cast<int32_t>(next + met);
        if (met < room) call.nodes[next + met] = node;
        ++met;
      }
      call.senders[e] = mark.row;
      if (met <= room) ++call.sender_offsets[mark.row + 1];
    }
    call.counts[hop + 1] = met;
    if (met > room) return hop + 1;
    count = met;
  }
  // The same edges sorted by sender; those of a hop keep their range.
  for (int64_t row = 0; row < rows; ++row) call.sender_offsets[row + 1] += call.sender_offsets[row];
  int32_t* place = call.sender_offsets;  // moved one row on while it is filled, and back after that
  for (int64_t hop = 0; hop < call.hops; ++hop) {
    for (int64_t row = call.row_starts[hop]; row < call.row_starts[hop] + call.counts[hop]; ++row) {
      for (int32_t e = call.row_offsets[row]; e < call.row_offsets[row + 1]; ++e) {
        const int32_t to = place[call.senders[e]]++;
        call.receivers_by_sender[to] = static_cast<int32_t>(row);
        call.sender_order[to] = e;
      }
    }
  }
  for (int64_t row = rows; row > 0; --row) call.sender_offsets[row] = call.sender_offsets[row - 1];
  call.sender_offsets[0] = 0;
  return 0;
}

}  // namespace

extern "C" {

#define GTJAX_SAMPLE(NAME, NODE)                                                                      \
  int64_t NAME(const int64_t* offsets, const NODE* neighbours, int64_t num_nodes,              \
               const int64_t* fan_outs, int64_t hops,                                                 \
               uint64_t seed, uint64_t step, const int64_t* row_starts, const int64_t* edge_bounds,   \
               void* marks, uint32_t tag, int64_t* nodes, int32_t* row_offsets, int32_t* senders,     \
               int64_t* positions, int32_t* sender_offsets, int32_t* receivers_by_sender,             \
               int32_t* sender_order, int64_t* degrees, int64_t* counts) {                            \
    return Sample<NODE>({offsets, neighbours, num_nodes, fan_outs, hops, seed, step, row_starts, edge_bounds,    \
                         static_cast<Mark*>(marks), tag, nodes, row_offsets, senders, positions,      \
                         sender_offsets, receivers_by_sender, sender_order, degrees, counts});        \
  }

GTJAX_SAMPLE(gtjax_sample_32, int32_t)
GTJAX_SAMPLE(gtjax_sample_64, int64_t)

// Rows of a table, one after the other.
void gtjax_gather_rows(const char* table, const int64_t* rows, int64_t count, int64_t row_bytes,
                       char* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + 8 < count) {
      const char* ahead = table + rows[i + 8] * row_bytes;
      for (int64_t b = 0; b < row_bytes && b < 1024; b += 64) __builtin_prefetch(ahead + b);
    }
    std::memcpy(out + i * row_bytes, table + rows[i] * row_bytes, row_bytes);
  }
}

}  // extern "C"
