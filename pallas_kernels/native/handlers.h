// What the handlers that XLA calls share: the types of their arguments, checks of them, and which
// set of instructions to use.

#ifndef GTJAX_HANDLERS_H_
#define GTJAX_HANDLERS_H_

#include <algorithm>
#include <cstdint>
#include <string_view>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "passes.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace gtjax {

using Floats = ffi::Buffer<ffi::F32>;
using Ints = ffi::Buffer<ffi::S32>;
using Words = ffi::Buffer<ffi::U32>;
using FloatsOut = ffi::ResultBuffer<ffi::F32>;

// Which of the sets of instructions that the passes are compiled for has that name, or is the best
// there is: 0 baseline, 1 avx2, 2 avx512; -1 if this processor has not got them.
inline int Instructions(std::string_view name) {
  const bool any = name == "best";
#if defined(GTJAX_X86)
  __builtin_cpu_init();
  if ((any || name == "avx512") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd")) {
    return 2;
  }
  if ((any || name == "avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    return 1;
  }
#endif
  return any || name == "baseline" ? 0 : -1;
}

// Declares one Type called `name` for each set of instructions that it is compiled for, and
// name##In(instructions), which is the one to use, or null.
#if defined(GTJAX_X86)
#define GTJAX_PASSES(Type, name)                                        \
  namespace baseline { extern const Type name; }                        \
  namespace avx2 { extern const Type name; }                            \
  namespace avx512 { extern const Type name; }                          \
  static const Type* name##In(std::string_view instructions) {          \
    switch (gtjax::Instructions(instructions)) {                        \
      case 2: return &avx512::name;                                     \
      case 1: return &avx2::name;                                       \
      case 0: return &baseline::name;                                   \
      default: return nullptr;                                          \
    }                                                                   \
  }
#else
#define GTJAX_PASSES(Type, name)                                        \
  namespace baseline { extern const Type name; }                        \
  static const Type* name##In(std::string_view instructions) {          \
    return gtjax::Instructions(instructions) == 0 ? &baseline::name : nullptr; \
  }
#endif

inline Pool PoolOf(ffi::ThreadPool& pool) {
  return {std::max<int64_t>(1, pool.num_threads()),
          [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); }};
}

// Results are fresh memory: in large pages they cost a fraction of the faults.
inline float* Fresh(FloatsOut& out) {
#if defined(__linux__)
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  const uintptr_t start = reinterpret_cast<uintptr_t>(out->typed_data());
  const uintptr_t first = (start + kPage - 1) / kPage * kPage;
  const uintptr_t last = (start + out->size_bytes()) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
  return out->typed_data();
}

// Whether an array has these sizes; -1 stands for any.
template <typename Array>
bool HasShape(const Array& array, std::initializer_list<int64_t> sizes) {
  const auto shape = array.dimensions();
  return shape.size() == sizes.size() &&
         std::equal(sizes.begin(), sizes.end(), shape.begin(),
                    [](int64_t wanted, int64_t found) { return wanted < 0 || wanted == found; });
}

// The same, or an array of no rows at all, which stands for none.
template <typename Array>
bool HasShapeOrNone(const Array& array, std::initializer_list<int64_t> sizes) {
  return array.element_count() == 0 || HasShape(array, sizes);
}

// Whether arrays are [rows, heads, width] of one type with the same heads and width.
inline bool Agree(std::initializer_list<ffi::AnyBuffer> tables) {
  const auto first = tables.begin()->dimensions();
  const auto type = tables.begin()->element_type();
  if (type != ffi::F32 && type != ffi::BF16) return false;
  for (const auto& table : tables) {
    const auto shape = table.dimensions();
    if (shape.size() != 3 || shape[1] != first[1] || shape[2] != first[2] || shape[2] == 0 ||
        table.element_type() != type) {
      return false;
    }
  }
  return true;
}

inline const ffi::Error kDisagree =
    ffi::Error::InvalidArgument("tables are [rows, heads, width] of float32 or bfloat16");
inline const ffi::Error kShapes =
    ffi::Error::InvalidArgument("arrays do not have the shapes that go with the tables and edges");
inline const ffi::Error kCannot =
    ffi::Error::InvalidArgument("this processor lacks these instructions");

inline Table TableOf(const ffi::AnyBuffer& array) {
  return {array.untyped_data(), array.element_type() == ffi::BF16};
}

inline Rows RowsOf(const ffi::AnyBuffer& table, const Ints& offsets, const Ints& columns) {
  return {static_cast<int64_t>(offsets.element_count()) - 1, table.dimensions()[1],
          table.dimensions()[2], offsets.typed_data(), columns.typed_data()};
}

// Whether there is a seed for all heads, or one each for as many of them.
inline bool HasSeeds(const Words& seeds, int64_t heads) {
  return seeds.element_count() > 0 && heads % seeds.element_count() == 0;
}

inline uint32_t Scramble(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// Edges after those of the last row are padding, which no pass comes by.
inline void ZeroPadding(FloatsOut& array, const Rows& rows, int64_t numbers) {
  float* end = array->typed_data() + array->element_count();
  std::fill(std::min(array->typed_data() + rows.offsets[rows.rows] * numbers, end), end, 0.0f);
}

inline EdgeData EdgeDataOf(const float* bias, const Words& ids, const Words& seed, double rate,
                           int64_t heads) {
  EdgeData data{bias, ids.typed_data(), nullptr, {}, 0, 1.0f};
  if (rate <= 0) return data;
  data.threshold = static_cast<uint32_t>(std::min(rate * 4294967296.0, 4294967295.0));
  data.kept = static_cast<float>(1.0 / (1.0 - rate));
  // Each seed has as many of the heads, which it numbers from 0; those after the last are padding.
  const int64_t seeds = seed.element_count(), own = std::max<int64_t>(1, heads / seeds);
  for (int64_t h = 0; h < (heads + 7) / 8 * 8; ++h) {
    const uint32_t head = static_cast<uint32_t>(h % own) * 0x9E3779B9u;
    data.draws.push_back(Scramble(head + seed.typed_data()[std::min(h / own, seeds - 1)]));
  }
  return data;
}

inline const float* DataOrNull(const Floats& array) {
  return array.element_count() ? array.typed_data() : nullptr;
}

inline auto Bind() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>(); }

}  // namespace gtjax

#endif  // GTJAX_HANDLERS_H_
