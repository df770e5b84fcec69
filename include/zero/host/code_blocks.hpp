#pragma once

#include "../backend/slices.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"
#include "../ops/arithmetic.hpp"
#include "../ops/block_codecs.hpp"
#include "../ops/codec.hpp"
#include "detail/cast_loops.hpp"
#include "detail/copy_loop.hpp"
#include "detail/run_loop.hpp"
#include "host_backend.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace ZERO_NAMESPACE::host::detail {

inline constexpr std::size_t coded_elements = zero::detail::coded_elements;

/// Prefetches the lines that a later block will read, `ahead` bytes beyond those of other loops.
template <class F>
[[gnu::always_inline]] inline void prefetch_lines(void const* from, std::size_t bytes,
                                                  std::size_t ahead = 0) noexcept {
    auto const first = reinterpret_cast<std::uintptr_t>(from) + ahead; // maybe behind the array
    for (std::size_t i = 0; i < bytes; i += 64) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there
        F::prefetch(reinterpret_cast<bfloat16 const*>(first + i));
    }
}

/// Encodes a range, block by block; elements behind its end are zero.
template <class C, StorageType T>
struct EncodeLoop {
    T const* in;
    std::size_t n;
    std::uint8_t* out;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        if constexpr (zero::detail::is_symmetric<C>) {
            constexpr std::size_t together = F::size * coded_elements;
            T const* from = in;
            std::uint8_t* to = out;
            std::size_t left = n;
            // The scales of a group are computed before the codes of the one before it are made,
            // which hides two divisions.
            Scales<F> next;
            if (left >= together) {
                next = Scales<F>(from);
            }
            while (left >= together) {
                Scales<F> const scales = next;
                left -= together;
                if (left >= together) {
                    next = Scales<F>(from + together);
                }
                put_group<F>(from, scales, to);
                from += together;
                to += F::size * C::bytes_per_block;
            }
            if (left != 0) {
                T rest[together] = {};
                std::uint8_t codes[F::size * C::bytes_per_block];
                copy_elements(rest, from, left);
                put_group<F>(rest, Scales<F>(rest), codes);
                std::size_t const blocks = (left + coded_elements - 1) / coded_elements;
                copy_elements(to, static_cast<std::uint8_t const*>(codes),
                              blocks * C::bytes_per_block);
            }
        } else {
            for (std::size_t begin = 0; begin < n; begin += coded_elements) {
                T rest[coded_elements] = {};
                float values[coded_elements];
                copy_elements(rest, in + begin,
                              n - begin < coded_elements ? n - begin : coded_elements);
                for (std::size_t i = 0; i < coded_elements; i += F::size) {
                    F::load(static_cast<T const*>(rest) + i).store(values + i);
                }
                C::encode(values, out + begin / coded_elements * C::bytes_per_block);
            }
        }
    }

private:
    static constexpr std::size_t half = coded_elements / 2;

    /// Measured from 0 to 6144 bytes: less is up to 1.5 times as slow, because a group is read at
    /// once, one group before its codes are made.
    static constexpr std::size_t encode_ahead = 6144;

    /// The scales that encode a group of as many blocks as a pack has elements.
    template <class F>
    struct Scales {
        F largest, scale, inverse;

        Scales() noexcept = default;
        [[gnu::always_inline]] explicit Scales(T const* from) noexcept
            : largest(F::largest_of_blocks(from)), scale(F::code_scales(largest, C::levels)),
              inverse(F::div(F(1.0F), scale)) {}
    };

    template <class F>
    [[gnu::always_inline]] static void put_group(T const* from, Scales<F> const& group,
                                                 std::uint8_t* to) noexcept {
        float largest[F::size];
        float scales[F::size];
        float inverses[F::size];
        group.largest.store(largest);
        group.scale.store(scales);
        group.inverse.store(inverses);
        for (std::size_t block = 0; block < F::size; ++block) {
            T const* const values = from + block * coded_elements;
            std::uint8_t* const codes = to + block * C::bytes_per_block;
            prefetch_lines<F>(values, coded_elements * sizeof(T), encode_ahead);
            C::put_scale(scales[block], codes);
            if (std::bit_cast<std::uint32_t>(largest[block]) < 0x7f800000U) {
                put_codes<F>(values, F(inverses[block]), codes);
            } else {
                for (std::size_t i = 0; i < C::code_bytes; ++i) {
                    codes[i] = 0;
                }
            }
        }
    }

    template <class F>
    [[gnu::always_inline]] static void put_codes(T const* from, F const& inverse,
                                                 std::uint8_t* to) noexcept {
        constexpr bool alternate = loads_alternate<F, T>;
        F low[half / F::size]; // in registers
        F high[half / F::size];
        put_quotients<F>(from, inverse, low);
        put_quotients<F>(from + half, inverse, high);
        if constexpr (C::code_bits == 8) {
            F::template store_codes<alternate>(low, to);
            F::template store_codes<alternate>(high, to + half);
        } else {
            F::template store_codes<alternate>(low, high, to);
        }
    }

    template <class F>
    [[gnu::always_inline]] static void put_quotients(T const* from, F const& inverse,
                                                     F (&to)[half / F::size]) noexcept {
        ZERO_HOST_UNROLL(4)
        for (std::size_t i = 0; i < half / F::size; i += 2) {
            if constexpr (loads_alternate<F, T>) {
                F::load_alternate(from + i * F::size, to[i], to[i + 1]);
            } else {
                to[i] = F::load(from + i * F::size);
                to[i + 1] = F::load(from + (i + 1) * F::size);
            }
            to[i] = F::mul(to[i], inverse);
            to[i + 1] = F::mul(to[i + 1], inverse);
        }
    }
};

/// Calls `loop.block<past_caches, F>(codes, values)` for each block of n elements. A last one that
/// is not whole is decoded apart, and if `reads` after its values were copied there.
template <class C, class F, bool streams, bool reads, class Loop, class T>
[[gnu::always_inline]] inline void walk_blocks(Loop const& loop, std::uint8_t const* from, T* to,
                                               std::size_t n) noexcept {
    for (; n >= coded_elements; n -= coded_elements) {
        loop.template block<streams, F>(from, to);
        from += C::bytes_per_block;
        to += coded_elements;
    }
    if constexpr (streams) {
        F::finish_streams();
    }
    if (n != 0) {
        T rest[coded_elements] = {};
        if constexpr (reads) {
            copy_elements(rest, static_cast<T const*>(to), n);
        }
        loop.template block<false, F>(from, rest);
        copy_elements(to, static_cast<T const*>(rest), n);
    }
}

/// Decodes a range, block by block. With `streams` the results bypass the caches; `out` is then
/// aligned.
template <class C, StorageType T, bool streams>
struct DecodeLoop {
    std::uint8_t const* in;
    T* out;
    std::size_t n;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        walk_blocks<C, F, streams, false>(*this, in, out, n);
    }

    template <bool past_caches, class F>
    [[gnu::always_inline]] static void block(std::uint8_t const* from, T* to) noexcept {
        constexpr std::size_t half = coded_elements / 2;
        if constexpr (!zero::detail::is_symmetric<C>) {
            float values[coded_elements];
            C::decode(from, values);
            for (std::size_t i = 0; i < coded_elements; i += 2 * F::size) {
                F::load(values + i)
                    .with_canonical_nan()
                    .template store_with<past_caches, true>(
                        F::load(values + i + F::size).with_canonical_nan(), to + i);
            }
            return;
        } else {
            F const scale(C::scale_of(from)); // a NaN is the canonical one
            prefetch_lines<F>(from, C::code_bytes);
            if constexpr (C::code_bits == 8) {
                ZERO_HOST_UNROLL(4)
                for (std::size_t i = 0; i < coded_elements; i += 2 * F::size) {
                    F::mul(F::load_codes(from + i), scale)
                        .template store_with<past_caches, true>(
                            F::mul(F::load_codes(from + i + F::size), scale), to + i);
                }
            } else {
                ZERO_HOST_UNROLL(2)
                for (std::size_t i = 0; i < half; i += 2 * F::size) {
                    F low[2];
                    F high[2];
                    F::load_codes(from + i, low[0], high[0]);
                    F::load_codes(from + i + F::size, low[1], high[1]);
                    F::mul(low[0], scale)
                        .template store_with<past_caches, true>(F::mul(low[1], scale), to + i);
                    F::mul(high[0], scale)
                        .template store_with<past_caches, true>(F::mul(high[1], scale),
                                                                to + half + i);
                }
            }
        }
    }
};

/// Encodes a range plus what is kept of the last encodings, and keeps what this one loses. Groups
/// of blocks pass through a buffer in the first-level cache. @tparam S float or a codec
template <class C, class S, StorageType T, class E>
struct FeedbackLoop {
    T const* in;
    std::size_t n;
    std::uint8_t* out;
    E* errors; ///< of the range
    float factor;
    float beta;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        F const scale(factor);
        F const kept(beta);
        F const taken(ops::sub(1.0F, beta));
        for (std::size_t begin = 0; begin < n; begin += most) {
            std::size_t const count = n - begin < most ? n - begin : most;
            std::size_t const block = begin / coded_elements;
            T gradients[most] = {};
            float old[most] = {};
            float values[most];
            float decoded[most] = {};
            copy_elements(gradients, in + begin, count);
            if constexpr (std::is_same_v<S, float>) {
                copy_elements(old, static_cast<float const*>(errors) + begin, count);
            } else {
                DecodeLoop<S, float, false>{errors + block * S::bytes_per_block, old, count}
                    .template operator()<F>();
            }
            for (std::size_t i = 0; i < most; i += F::size) {
                F const error = F::mul(F::load(static_cast<float const*>(old) + i), scale);
                error.store(old + i);
                F::add(F::load(static_cast<T const*>(gradients) + i), error).store(values + i);
            }
            std::uint8_t* const codes = out + block * C::bytes_per_block;
            EncodeLoop<C, float>{values, count, codes}.template operator()<F>();
            DecodeLoop<C, float, false>{codes, decoded, count}.template operator()<F>();
            for (std::size_t i = 0; i < most; i += F::size) {
                F const lost = F::sub(F::load(static_cast<float const*>(values) + i),
                                      F::load(static_cast<float const*>(decoded) + i));
                F const error =
                    F::fma(kept, F::load(static_cast<float const*>(old) + i), F::mul(taken, lost));
                auto const is_finite = F::less_equal(F::sub(error, error), F(0.0F));
                F::select(is_finite, error, F(0.0F)).store(old + i);
            }
            if constexpr (std::is_same_v<S, float>) {
                copy_elements(errors + begin, static_cast<float const*>(old), count);
            } else {
                EncodeLoop<S, float>{old, count, errors + block * S::bytes_per_block}
                    .template operator()<F>();
            }
        }
    }

private:
    static constexpr std::size_t most = 8 * coded_elements;
};

/// Decodes the ranges of all ranks block by block, adds them in rank order, and rounds the sums to
/// `A`, or adds them if `adds`. With `streams` the results bypass the caches; `out` is then
/// aligned.
template <class C, StorageType A, bool streams, bool adds>
struct DecodeSumLoop {
    static_assert(!streams || !adds);

    std::uint8_t const* in; ///< of rank 0
    CodedPieces pieces;
    A* out;
    std::size_t n;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        walk_blocks<C, F, streams, adds>(*this, in, out, n);
    }

    template <bool past_caches, class F>
    [[gnu::always_inline]] void block(std::uint8_t const* from, A* to) const noexcept {
        F sums[coded_elements / F::size];
        constexpr bool fuses = F::fuses && zero::detail::is_symmetric<C>;
        if (has_finite_products<fuses>(from)) {
            add_ranks<fuses>(from, sums);
        } else {
            add_ranks<false>(from, sums);
        }
        ZERO_HOST_UNROLL(4)
        for (std::size_t i = 0; i < coded_elements / F::size; i += 2) {
            A* const at = to + i * F::size;
            if constexpr (adds) {
                sums[i] = F::add(F::load(at), sums[i]);
                sums[i + 1] = F::add(F::load(at + F::size), sums[i + 1]);
            }
            sums[i].with_canonical_nan().template store_with<past_caches, true>(
                sums[i + 1].with_canonical_nan(), at);
        }
    }

private:
    /// Whether code x scale is finite in all ranks' blocks. It has 15 bits, so it is exact then,
    /// and a fused addition has the bits of a product and a sum.
    template <bool is_asked>
    [[nodiscard]] bool has_finite_products(std::uint8_t const* from) const noexcept {
        bool is_finite = is_asked;
        for (std::size_t rank = 0; is_asked && rank < pieces.ranks; ++rank) {
            if constexpr (is_asked) {
                float const scale = C::scale_of(from + rank * pieces.bytes);
                auto const bits = std::bit_cast<std::uint32_t>(scale) & 0x7fffffffU;
                is_finite = is_finite && bits < 0x7b800000U; // 2^120, and a code is at most 2^7
            }
        }
        return is_finite;
    }

    template <bool is_fused, class F, std::size_t packs>
    [[gnu::always_inline]] void add_ranks(std::uint8_t const* from,
                                          F (&sums)[packs]) const noexcept {
        add_rank<true, false>(from, sums);
        for (std::size_t rank = 1; rank < pieces.ranks; ++rank) {
            add_rank<false, is_fused>(from + rank * pieces.bytes, sums);
        }
    }

    /// Adds the values of a rank to eight packs, which stay in registers.
    template <bool is_first, bool is_fused, class F, std::size_t packs>
    [[gnu::always_inline]] static void add_rank(std::uint8_t const* from,
                                                F (&sums)[packs]) noexcept {
        auto const add = [&](std::size_t pack, F const& value) __attribute__((always_inline)) {
            sums[pack] = is_first ? value : F::add(sums[pack], value);
        };
        if constexpr (!zero::detail::is_symmetric<C>) {
            float values[coded_elements];
            C::decode(from, values);
            for (std::size_t i = 0; i < packs; ++i) {
                add(i, F::load(static_cast<float const*>(values) + i * F::size));
            }
        } else {
            F const scale(C::scale_of(from));
            auto const add_codes = [&](std::size_t pack, F const& codes)
                __attribute__((always_inline)) {
                if constexpr (is_fused) {
                    sums[pack] = F::fma(codes, scale, sums[pack]);
                } else {
                    add(pack, F::mul(codes, scale));
                }
            };
            prefetch_lines<F>(from, C::code_bytes);
            if constexpr (C::code_bits == 8) {
                ZERO_HOST_UNROLL(8)
                for (std::size_t i = 0; i < packs; ++i) {
                    add_codes(i, F::load_codes(from + i * F::size));
                }
            } else {
                ZERO_HOST_UNROLL(4)
                for (std::size_t i = 0; i < packs / 2; ++i) {
                    F low;
                    F high;
                    F::load_codes(from + i * F::size, low, high);
                    add_codes(i, low);
                    add_codes(packs / 2 + i, high);
                }
            }
        }
    }
};

} // namespace ZERO_NAMESPACE::host::detail

namespace ZERO_NAMESPACE::host {

/// @brief Encodes n elements of a parameter in blocks of 64, the last of which is completed with
/// zeros. The same bytes with every instruction set.
/// @param out `C::bytes_per_block` bytes for each block, at any address
template <Codec C, StorageType T>
void encode(std::uint8_t* out, T const* in, std::size_t n) noexcept {
    detail::run(detail::EncodeLoop<C, T>{in, n, out});
}

/// @brief Decodes n elements, rounded to T. NaNs are canonical.
/// @param moved_bytes bytes that all decodings of an operation read and write; decides whether the
/// results bypass the caches
template <Codec C, StorageType T>
void decode(T* out, std::uint8_t const* in, std::size_t n, std::size_t moved_bytes = 0) noexcept {
    bool const is_aligned = reinterpret_cast<std::uintptr_t>(out) % detail::streamed_alignment == 0;
    if (is_aligned && moved_bytes >= detail::streaming_copy_bytes) {
        detail::run(detail::DecodeLoop<C, T, true>{in, out, n});
    } else {
        detail::run(detail::DecodeLoop<C, T, false>{in, out, n});
    }
}

/// @brief Encodes v = n gradients + `factor` times the old errors, and replaces the errors e by
/// beta e + (1 - beta) (v - decoded v), or by 0 where that is not finite. The same bytes with every
/// instruction set.
/// @tparam S `float`, or the codec of errors
/// @param errors n floats, or the codes of n errors
template <Codec C, class S, StorageType T, class E>
void encode_with_feedback(std::uint8_t* out, T const* in, std::size_t n, E* errors, float factor,
                          float beta) noexcept {
    detail::run(detail::FeedbackLoop<C, S, T, E>{in, n, out, errors, factor, beta});
}

/// @brief Adds the decoded elements of W ranks in float, in rank order, and rounds the sums once:
/// `sums` = the sum, or, if `is_added`, `sums` plus the sum. NaNs are canonical. The same bits with
/// every instruction set.
/// @param codes of n elements from rank 0; those of rank r are at `codes + r * pieces.bytes`
/// @param moved_bytes as for `decode`
template <Codec C, StorageType A>
void decode_sum(A* sums, std::uint8_t const* codes, CodedPieces pieces, std::size_t n,
                bool is_added, std::size_t moved_bytes = 0) noexcept {
    bool const is_aligned =
        reinterpret_cast<std::uintptr_t>(sums) % detail::streamed_alignment == 0;
    if (is_added) {
        detail::run(detail::DecodeSumLoop<C, A, false, true>{codes, pieces, sums, n});
    } else if (is_aligned && moved_bytes >= detail::streaming_copy_bytes) {
        detail::run(detail::DecodeSumLoop<C, A, true, false>{codes, pieces, sums, n});
    } else {
        detail::run(detail::DecodeSumLoop<C, A, false, false>{codes, pieces, sums, n});
    }
}

/// @brief Encodes the slices of a bucket, each of which begins at a multiple of 64.
/// @param codes of the bucket
template <Codec C, StorageType T>
void encode(std::span<CopySlice<T> const> slices, std::uint8_t* codes) noexcept {
    for (auto const& slice : slices) {
        encode<C>(codes + slice.bucket_begin / detail::coded_elements * C::bytes_per_block,
                  static_cast<T const*>(slice.tensor), slice.elements);
    }
}

/// @brief Decodes the slices of a bucket.
/// @param bucket where slices without a tensor are
template <Codec C, StorageType T>
void decode(std::span<CopySlice<T> const> slices, std::uint8_t const* codes, T* bucket) noexcept {
    std::size_t moved = 0;
    for (auto const& slice : slices) {
        moved += slice.elements * (sizeof(T) + 1);
    }
    for (auto const& slice : slices) {
        decode<C>(slice.tensor != nullptr ? slice.tensor : bucket + slice.bucket_begin,
                  codes + slice.bucket_begin / detail::coded_elements * C::bytes_per_block,
                  slice.elements, moved);
    }
}

} // namespace ZERO_NAMESPACE::host

namespace ZERO_NAMESPACE {

template <class C, StorageType T>
void HostBackend::encode(Queue queue, std::span<CopySlice<T> const> slices, std::uint8_t* codes) {
    queue->enqueue([=] { host::encode<C>(slices, codes); });
}

template <class C, StorageType T>
void HostBackend::decode(Queue queue, std::span<CopySlice<T> const> slices,
                         std::uint8_t const* codes, T* bucket) {
    queue->enqueue([=] { host::decode<C>(slices, codes, bucket); });
}

template <class C, StorageType T>
void HostBackend::encode(Queue queue, std::span<CodedSlice const> slices, T const* bucket,
                         std::uint8_t* codes) {
    queue->enqueue([=] {
        for (CodedSlice const& slice : slices) {
            host::encode<C>(codes + slice.block * C::bytes_per_block, bucket + slice.bucket_begin,
                            slice.elements);
        }
    });
}

template <class C, class S, StorageType T, class E>
void HostBackend::encode_with_feedback(Queue queue, std::span<CodedSlice const> slices,
                                       T const* bucket, std::uint8_t* codes,
                                       CodedErrors<E> const& errors) {
    queue->enqueue([=] {
        float const factor = errors.factor == nullptr ? 1.0F : *errors.factor;
        for (CodedSlice const& slice : slices) {
            std::size_t offset = slice.bucket_begin;
            if constexpr (!std::is_same_v<S, float>) {
                offset = offset / host::detail::coded_elements * S::bytes_per_block;
            }
            host::encode_with_feedback<C, S>(codes + slice.block * C::bytes_per_block,
                                             bucket + slice.bucket_begin, slice.elements,
                                             errors.errors + offset, factor, errors.beta);
        }
    });
}

template <class C, StorageType A>
void HostBackend::decode_sum(Queue queue, std::span<CodedSlice const> slices,
                             std::uint8_t const* codes, CodedPieces pieces, A* sums,
                             bool is_added) {
    queue->enqueue([=] {
        std::size_t moved = 0;
        for (CodedSlice const& slice : slices) {
            moved += slice.elements * (sizeof(A) + pieces.ranks);
        }
        for (CodedSlice const& slice : slices) {
            host::decode_sum<C>(sums + slice.bucket_begin, codes + slice.block * C::bytes_per_block,
                                pieces, slice.elements, is_added, moved);
        }
    });
}

} // namespace ZERO_NAMESPACE
