// The two loops over edges of the streaming partitioner: which label most neighbours of a node
// carry, and how many edges go between two clusters.
//
// Called through ctypes, which lets go of Python's lock. `label_propagation.py` and `pairs.py` have
// the same in numpy, with the same results, which tests hold this to. Node numbers are checked here,
// before anything is read at them.

#include <cmath>
#include <cstdint>
#include <vector>

namespace {

constexpr int64_t kAhead = 24;          // edges whose labels are fetched before they are needed
constexpr int64_t kDense = 1 << 12;     // labels up to which votes are counted in an array
constexpr int64_t kOutOfRange = -1;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

inline uint64_t Mix(uint64_t x) {  // splitmix64's finaliser (Steele, Lea and Flood 2014)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// In [0, 0.5): decides between labels of equal weight, which differ by 1 otherwise.
inline double Lot(uint64_t lots, int64_t node, int64_t label) {
  uint64_t hash = Mix(lots + kGolden * static_cast<uint64_t>(node));
  hash = Mix(hash + kGolden * static_cast<uint64_t>(label));
  return static_cast<double>(hash >> 11) * 0x1p-54;
}

// Votes of one node: labels in the order in which they came up, with their weights.
class Tally {
 public:
  explicit Tally(int64_t count) : dense_(count <= kDense) {
    if (dense_) slot_.assign(count, -1);
  }

  void Start(int64_t edges) {
    if (dense_) {
      for (int64_t label : label_) slot_[label] = -1;
    } else {
      uint64_t size = 16;
      while (size < 2 * static_cast<uint64_t>(edges)) size *= 2;
      if (slot_.size() < size) slot_.resize(size);
      for (uint64_t i = 0; i < size; ++i) slot_[i] = -1;
      mask_ = size - 1;
    }
    label_.clear();
    weight_.clear();
  }

  void Add(int64_t label, int64_t weight) {
    uint64_t place = dense_ ? static_cast<uint64_t>(label) : Mix(label) & mask_;
    while (slot_[place] >= 0 && label_[slot_[place]] != label) place = (place + 1) & mask_;
    if (slot_[place] < 0) {
      slot_[place] = static_cast<int64_t>(label_.size());
      label_.push_back(label);
      weight_.push_back(0);
    }
    weight_[slot_[place]] += weight;
  }

  const std::vector<int64_t>& labels() const { return label_; }
  const std::vector<int64_t>& weights() const { return weight_; }

 private:
  bool dense_;
  uint64_t mask_ = 0;
  std::vector<int64_t> slot_;  // where a label is in the two lists
  std::vector<int64_t> label_, weight_;
};

// A table of pairs of clusters, by hash: keys are -1 where it is empty.
struct Pairs {
  int64_t* keys;
  int64_t* weights;
  uint64_t mask;
  int64_t used;

  uint64_t Place(int64_t key) const { return Mix(static_cast<uint64_t>(key)) & mask; }

  void Add(int64_t key, int64_t weight) {
    uint64_t place = Place(key);
    while (keys[place] >= 0 && keys[place] != key) place = (place + 1) & mask;
    if (keys[place] < 0) keys[place] = key, ++used;
    weights[place] += weight;
  }
};

}  // namespace

extern "C" {

// The strongest label with room of every node all of whose edges stand in a row. Writes node, label
// (-1: none has room), its weight with the lot, and the weight of the node's own label; and the
// places of all other edges. Gives the number of nodes, or -1 where a number is out of range.
int64_t gtjax_choose_labels(const int64_t* receivers, const int64_t* senders, const int64_t* weights,
                            int64_t edges, int64_t nodes, const int64_t* degree_n,
                            const int64_t* label_n, int64_t count, const double* load_lc,
                            const double* weight_nc, const double* capacity_c, int64_t constraints,
                            double little, uint64_t lots, int64_t* node_d, int64_t* label_d,
                            double* best_d, double* own_d, int64_t* rest_e, int64_t* num_rest) {
  const uint64_t limit = static_cast<uint64_t>(nodes);
  for (int64_t e = 0; e < edges; ++e) {
    if (static_cast<uint64_t>(receivers[e]) >= limit || static_cast<uint64_t>(senders[e]) >= limit)
      return kOutOfRange;
  }
  Tally tally(count);
  std::vector<double> room(constraints);
  int64_t found = 0, rest = 0;
  for (int64_t start = 0, end; start < edges; start = end) {
    const int64_t node = receivers[start];
    for (end = start + 1; end < edges && receivers[end] == node;) ++end;
    if (end - start != degree_n[node]) {
      for (int64_t e = start; e < end; ++e) rest_e[rest++] = e;
      continue;
    }
    tally.Start(end - start);
    for (int64_t e = start; e < end; ++e) {
      if (e + kAhead < edges) __builtin_prefetch(&label_n[senders[e + kAhead]]);
      tally.Add(label_n[senders[e]], weights[e]);
    }
    // What a label may carry already, for this node to fit: the strict constraint and all of which
    // the node does not weigh little beside its heaviest.
    const double* weight_c = weight_nc + node * constraints;
    double heaviest = 0;
    for (int64_t c = 0; c < constraints; ++c) heaviest = std::fmax(heaviest, weight_c[c] / capacity_c[c]);
    const int64_t own = label_n[node];
    double best = -1, own_weight = 0;
    int64_t chosen = -1;
    for (size_t v = 0; v < tally.labels().size(); ++v) {
      const int64_t label = tally.labels()[v];
      const double weight = static_cast<double>(tally.weights()[v]);
      if (label == own) {
        own_weight = weight;
        continue;
      }
      const double score = weight + Lot(lots, node, label);
      if (score <= best) continue;
      bool fits = true;
      for (int64_t c = 0; c < constraints && fits; ++c) {
        const bool passes = c > 0 && little * (weight_c[c] / capacity_c[c]) < heaviest;
        fits = passes || load_lc[label * constraints + c] + weight_c[c] <= capacity_c[c];
      }
      if (fits) best = score, chosen = label;
    }
    node_d[found] = node;
    label_d[found] = chosen;
    best_d[found] = best;
    own_d[found++] = own_weight;
  }
  *num_rest = rest;
  return found;
}

// Adds the edges between different clusters to a table of pairs, as `receiver * count + sender`. It
// has room for all of them. Gives how many pairs it holds, or -1 where a number is out of range.
int64_t gtjax_count_pairs(const int64_t* receivers, const int64_t* senders, const int64_t* weights,
                          int64_t edges, int64_t nodes, const int64_t* cluster_n, int64_t count,
                          int64_t* key_t, int64_t* weight_t, int64_t size, int64_t used) {
  const uint64_t limit = static_cast<uint64_t>(nodes);
  for (int64_t e = 0; e < edges; ++e) {
    if (static_cast<uint64_t>(receivers[e]) >= limit || static_cast<uint64_t>(senders[e]) >= limit)
      return kOutOfRange;
  }
  Pairs pairs{key_t, weight_t, static_cast<uint64_t>(size) - 1, used};
  int64_t keys[kAhead];  // of the edges ahead, whose places are on their way
  for (int64_t ahead = 0; ahead < edges + kAhead; ++ahead) {
    const int64_t e = ahead - kAhead, slot = ahead % kAhead;
    if (e >= 0 && keys[slot] >= 0) pairs.Add(keys[slot], weights[e]);
    if (ahead < edges) {
      const int64_t to = cluster_n[receivers[ahead]], from = cluster_n[senders[ahead]];
      keys[slot] = to == from ? -1 : to * count + from;
      if (to != from) __builtin_prefetch(&key_t[pairs.Place(keys[slot])], 1);
    }
  }
  return pairs.used;
}

// Puts pairs that are known into a table that has room for them; gives how many it holds.
int64_t gtjax_put_pairs(const int64_t* key_q, const int64_t* weight_q, int64_t count, int64_t* key_t,
                        int64_t* weight_t, int64_t size, int64_t used) {
  Pairs pairs{key_t, weight_t, static_cast<uint64_t>(size) - 1, used};
  for (int64_t q = 0; q < count; ++q) {
    if (q + kAhead < count) __builtin_prefetch(&key_t[pairs.Place(key_q[q + kAhead])], 1);
    pairs.Add(key_q[q], weight_q[q]);
  }
  return pairs.used;
}

}  // extern "C"
