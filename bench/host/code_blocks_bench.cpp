#include "host/memory_twin.hpp"

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/host/code_blocks.hpp>
#include <zero/ops/block_codecs.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

// Compares the codes of blocks with loops that move the same bytes.
//
//   encode               reads elements and writes codes
//   encode ... errors    reads and writes the errors of an encoding as well
//   decode               reads codes and writes elements
//   decode_sum           reads the codes of 4 ranks and writes their sums
namespace {

using namespace zero;

constexpr std::size_t world = 4;

/// In the place of a codec: elements as they are.
template <class T>
struct Plain {
    static constexpr std::size_t bytes_per_block = 64 * sizeof(T);
};
template <class C>
constexpr bool is_coded = Codec<C>;
template <class C>
constexpr std::size_t bytes_of(std::size_t n) {
    return n / 64 * C::bytes_per_block;
}

/// Elements with most of a codec's codes in each block.
template <class T>
struct Values : bench::Array<T> {
    explicit Values(std::size_t n) : bench::Array<T>(n) {
        for (std::size_t i = 0; i < n; ++i) {
            (*this)[i] = from_float<T>(static_cast<float>(i * 37 % 64) * 0.03125F - 1.0F);
        }
    }
};

struct Bytes : bench::Array<std::uint8_t> {
    using Array::Array;
    [[nodiscard]] std::uint8_t const* read() const { return data(); }
};

template <class C, class T>
void encode(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Values<T> const values(n);
    Bytes const codes(bytes_of<C>(n));
    for (auto _ : state) {
        host::encode<C>(codes.data(), static_cast<T const*>(values.data()), n);
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, static_cast<double>(bytes_of<Plain<T>>(n) + bytes_of<C>(n)));
}

template <class C, class T>
void decode(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Bytes const codes(bytes_of<C>(n));
    bench::Array<T> const values(n);
    std::size_t const moved = bytes_of<Plain<T>>(n) + bytes_of<C>(n);
    for (auto _ : state) {
        host::decode<C>(values.data(), codes.read(), n, moved);
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, static_cast<double>(moved));
}

template <class C, class A>
void decode_sum(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    CodedPieces const pieces{world, bytes_of<C>(n)};
    Bytes const codes(world * pieces.bytes);
    bench::Array<A> const sums(n);
    std::size_t const moved = bytes_of<Plain<A>>(n) + codes.size();
    for (auto _ : state) {
        host::decode_sum<C>(sums.data(), codes.read(), pieces, n, false, moved);
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, static_cast<double>(moved));
}

/// Reads what `ranks` have as In and writes it as Out. Codes are sent at once, so they do not
/// bypass the caches.
template <class In, class Out, std::size_t ranks = 1>
void twin(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Bytes const in(ranks * bytes_of<In>(n), 1);
    Bytes const out(bytes_of<Out>(n));
    void const* from[ranks];
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        from[rank] = in.data() + rank * bytes_of<In>(n);
    }
    for (auto _ : state) {
        bench::with_stores(is_coded<Out> ? 0 : in.size() + out.size(), [&]<bool streams>() {
            bench::move_codes<streams>(out.data(), out.size(), from, ranks, bytes_of<In>(n));
        });
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, static_cast<double>(in.size() + out.size()));
}

/// @tparam S `float` or a codec
template <class S>
using Kept = std::conditional_t<std::is_same_v<S, float>, Plain<float>, S>;
template <class S>
using Error = std::conditional_t<std::is_same_v<S, float>, float, std::uint8_t>;

template <class C, class S, class T>
std::size_t moved_with_errors(std::size_t n) {
    return bytes_of<Plain<T>>(n) + bytes_of<C>(n) + 2 * bytes_of<Kept<S>>(n);
}

template <class C, class S, class T>
void encode_with_errors(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Values<T> const values(n);
    Bytes const codes(bytes_of<C>(n));
    bench::Array<Error<S>> const errors(bytes_of<Kept<S>>(n) / sizeof(Error<S>));
    for (auto _ : state) {
        host::encode_with_feedback<C, S>(codes.data(), static_cast<T const*>(values.data()), n,
                                         errors.data(), 1.0F, 0.8F);
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, static_cast<double>(moved_with_errors<C, S, T>(n)));
}

template <class C, class S, class T>
void twin_with_errors(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Bytes const in(bytes_of<Plain<T>>(n), 1);
    Bytes const out(bytes_of<C>(n));
    Bytes const errors(bytes_of<Kept<S>>(n));
    for (auto _ : state) {
        for (std::size_t begin = 0; begin < n; begin += 512) {
            std::size_t const count = std::min<std::size_t>(512, n - begin);
            void const* const from = in.data() + bytes_of<Plain<T>>(begin);
            bench::move_codes<false>(out.data() + bytes_of<C>(begin), bytes_of<C>(count), &from, 1,
                                     bytes_of<Plain<T>>(count));
            bench::move_in_place(errors.data() + bytes_of<Kept<S>>(begin),
                                 bytes_of<Kept<S>>(count));
        }
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, static_cast<double>(moved_with_errors<C, S, T>(n)));
}

void add(std::string const& name, void (*own)(benchmark::State&),
         void (*other)(benchmark::State&)) {
    for (auto const& [who, function] : {std::pair{"/twin", other}, std::pair{"/zero", own}}) {
        benchmark::RegisterBenchmark((name + who).c_str(), function)
            ->Arg(1 << 20)
            ->Apply(bench::largest_size);
    }
}

template <class C>
void add_codec(std::string const& codec) {
    add("encode/bfloat16_" + codec, encode<C, bfloat16>, twin<Plain<bfloat16>, C>);
    add("encode/float32_" + codec, encode<C, float>, twin<Plain<float>, C>);
    add("encode/bfloat16_" + codec + "_float_errors", encode_with_errors<C, float, bfloat16>,
        twin_with_errors<C, float, bfloat16>);
    add("encode/bfloat16_" + codec + "_int8_errors", encode_with_errors<C, Int8Blocks, bfloat16>,
        twin_with_errors<C, Int8Blocks, bfloat16>);
    add("decode/bfloat16_" + codec, decode<C, bfloat16>, twin<C, Plain<bfloat16>>);
    add("decode_sum/float32_" + codec + "_W4", decode_sum<C, float>, twin<C, Plain<float>, world>);
}

[[maybe_unused]] bool const is_registered = [] {
    bench::keep_memory();
    add_codec<Int8Blocks>("int8");
    add_codec<Int4Blocks>("int4");
    return true;
}();

} // namespace
