#pragma once

#include "../../backend/slices.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "cast_loops.hpp"
#include "copy_loop.hpp"

#include <cstddef>
#include <cstdint>

/// The place where a master weight is read, rounded and written on the host: `UpdateLoop` gets one
/// of the access types below. An access reads and writes packs at an offset; its `Rest` holds the
/// elements at the end of a range that do not fill a pack. `begin` is the offset of a pack or of
/// the rest and a multiple of the size of a pack.
namespace ZERO_NAMESPACE::host::detail {

/// The way in which an update writes the parameter in addition to its master weight.
enum class ParameterWrite { none, cached, streamed };

/// Accesses a master weight of type M. A store rounds the result to M. Unless `parameter_write` is
/// `none`, it also rounds the same float to P and writes the parameter.
template <StorageType M, StorageType P, ParameterWrite parameter_write>
struct MasterAccess {
    static constexpr bool writes_parameter = parameter_write != ParameterWrite::none;
    static constexpr bool streams = parameter_write == ParameterWrite::streamed;

    MasterPointers<M, P> at;

    [[nodiscard]] MasterAccess from(std::size_t begin) const noexcept {
        return {{at.master + begin, writes_parameter ? at.parameter + begin : nullptr}};
    }

    template <class F>
    [[gnu::always_inline]] void prefetch(std::size_t begin) const noexcept {
        F::prefetch(at.master + begin);
    }

    template <class F>
    [[gnu::always_inline]] F load(std::size_t begin) const noexcept {
        return F::load(at.master + begin);
    }

    template <bool past_caches, class F>
    [[gnu::always_inline]] void store(std::size_t begin, F const& value) const noexcept {
        value.store_number(at.master + begin);
        if constexpr (writes_parameter) {
            put<past_caches>(value, at.parameter + begin);
        }
    }

    template <std::size_t size>
    struct Rest {
        M master[size] = {};
        P parameter[size];

        Rest(MasterAccess const& from, std::size_t begin, std::size_t count) noexcept {
            copy_elements(master, from.at.master + begin, count);
        }

        MasterAccess access() noexcept { return {{master, parameter}}; }

        void write_to(MasterAccess const& to, std::size_t begin, std::size_t count) const noexcept {
            copy_elements(to.at.master + begin, master, count);
            if constexpr (writes_parameter) {
                copy_elements(to.at.parameter + begin, parameter, count);
            }
        }
    };
};

/// Weights that are stored in parts, of which the parameter is one.
struct SplitAccess {
    static constexpr bool streams = false; // the parameter is also read

    SplitPointers at;

    /// @param begin a multiple of 8
    [[nodiscard]] SplitAccess from(std::size_t begin) const noexcept {
        return {{at.parameter + begin, at.remainder + begin, at.rounded_up + begin / 8}};
    }

    template <class F>
    [[gnu::always_inline]] F load(std::size_t begin) const noexcept {
        return F::join(at.parameter + begin, at.remainder + begin,
                       static_cast<unsigned>(at.rounded_up[begin / 8]) >> shift<F>(begin));
    }

    template <bool, class F>
    [[gnu::always_inline]] void store(std::size_t begin, F const& value) const noexcept {
        constexpr unsigned lanes = (1U << F::size) - 1U;
        unsigned const bits = value.split(at.parameter + begin, at.remainder + begin);
        unsigned const others = at.rounded_up[begin / 8] & ~(lanes << shift<F>(begin))
                                & 0xffU; // zero where a pack fills a byte
        at.rounded_up[begin / 8] = static_cast<std::uint8_t>(others | bits << shift<F>(begin));
    }

    template <std::size_t size>
    struct Rest {
        bfloat16 parameter[size] = {};
        std::uint16_t remainder[size] = {};
        std::uint8_t rounded_up = 0;

        Rest(SplitAccess const& from, std::size_t begin, std::size_t count) noexcept {
            copy_elements(parameter, from.at.parameter + begin, count);
            copy_elements(remainder, from.at.remainder + begin, count);
            rounded_up = static_cast<std::uint8_t>(from.at.rounded_up[begin / 8] >> begin % 8);
        }

        SplitAccess access() noexcept { return {{parameter, remainder, &rounded_up}}; }

        void write_to(SplitAccess const& to, std::size_t begin, std::size_t count) const noexcept {
            copy_elements(to.at.parameter + begin, parameter, count);
            copy_elements(to.at.remainder + begin, remainder, count);
            unsigned const lanes = ((1U << count) - 1U) << begin % 8;
            unsigned const others = to.at.rounded_up[begin / 8] & ~lanes;
            to.at.rounded_up[begin / 8] = static_cast<std::uint8_t>(
                others | (static_cast<unsigned>(rounded_up) << begin % 8 & lanes));
        }
    };

private:
    /// Returns the bit of the first lane in its byte. For packs of 8 it is the constant 0.
    template <class F>
    static constexpr unsigned shift(std::size_t begin) noexcept {
        static_assert(8 % F::size == 0);
        return static_cast<unsigned>(begin / F::size % (8 / F::size) * F::size);
    }
};

/// Parameters that are their own masters and are rounded stochastically.
template <StorageType P>
struct StochasticAccess {
    static constexpr bool streams = false; // the parameter is also read

    StochasticPointers<P> at;

    [[nodiscard]] StochasticAccess from(std::size_t begin) const noexcept {
        return {{at.parameter + begin, at.first_index + begin, at.key}};
    }

    template <class F>
    [[gnu::always_inline]] F load(std::size_t begin) const noexcept {
        return F::load(at.parameter + begin);
    }

    template <bool, class F>
    [[gnu::always_inline]] void store(std::size_t begin, F const& value) const noexcept {
        value.store_stochastic(at.parameter + begin,
                               typename F::RandomBits(at.key, at.first_index + begin));
    }

    template <std::size_t size>
    struct Rest {
        P parameter[size] = {};
        std::uint64_t first_index;
        std::uint64_t key;

        Rest(StochasticAccess const& from, std::size_t begin, std::size_t count) noexcept
            : first_index(from.at.first_index + begin), key(from.at.key) {
            copy_elements(parameter, from.at.parameter + begin, count);
        }

        StochasticAccess access() noexcept { return {{parameter, first_index, key}}; }

        void write_to(StochasticAccess const& to, std::size_t begin,
                      std::size_t count) const noexcept {
            copy_elements(to.at.parameter + begin, parameter, count);
        }
    };
};

/// Weights that are only read: the results of the functor are written to `to`.
template <class Weights>
struct RedirectedAccess {
    static constexpr bool streams = false;

    Weights from;
    float* to;

    template <class F>
    [[gnu::always_inline]] F load(std::size_t begin) const noexcept {
        return from.template load<F>(begin);
    }

    template <bool, class F>
    [[gnu::always_inline]] void store(std::size_t begin, F const& value) const noexcept {
        value.store_number(to + begin);
    }

    template <std::size_t size>
    struct Rest {
        typename Weights::template Rest<size> weights;
        float values[size] = {};

        Rest(RedirectedAccess const& source, std::size_t begin, std::size_t count) noexcept
            : weights(source.from, begin, count) {}

        RedirectedAccess access() noexcept { return {weights.access(), values}; }

        void write_to(RedirectedAccess const& target, std::size_t begin,
                      std::size_t count) const noexcept {
            copy_elements(target.to + begin, values, count);
        }
    };
};

} // namespace ZERO_NAMESPACE::host::detail
