#include "host/kernel_inputs.hpp"

#include <zero/host/kernels.hpp>
#include <zero/host/update.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/tree_sum.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace zero::test::streaming_kernel_test {

// Compares ranges that are long enough to bypass the caches with the same range in short pieces.
namespace {

constexpr std::size_t piece = 50'000; // elements of at most 34 bytes: far below the limit
constexpr std::size_t alignment = 128;

template <class T>
struct Free {
    void operator()(T* memory) const { ::operator delete(memory, std::align_val_t{alignment}); }
};

/// An aligned copy of values, or zeros.
template <class T>
class Aligned {
public:
    explicit Aligned(std::size_t n)
        : _data(static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{alignment}))),
          _n(n) {
        std::uninitialized_fill_n(data(), n, T{});
    }
    explicit Aligned(std::vector<T> const& values) : Aligned(values.size()) {
        std::copy(values.begin(), values.end(), data());
    }

    [[nodiscard]] T* data() const { return _data.get(); }
    [[nodiscard]] bool operator==(Aligned const& other) const {
        return _n == other._n && std::memcmp(data(), other.data(), _n * sizeof(T)) == 0;
    }

private:
    std::unique_ptr<T, Free<T>> _data;
    std::size_t _n;
};

template <class Body>
void in_pieces(std::size_t n, Body const& body) {
    for (std::size_t begin = 0; begin < n; begin += piece) {
        body(begin, std::min(piece, n - begin));
    }
}

template <class To, class From>
bool converts_equally(float factor) {
    std::size_t const n = host::detail::streaming_bytes / (sizeof(To) + sizeof(From)) + 5;
    Aligned<From> const in(kernel_inputs<From>(n, 1));
    Aligned<To> const whole(n);
    Aligned<To> const pieces(n);
    host::convert(whole.data(), in.data(), n, factor);
    in_pieces(n, [&](std::size_t begin, std::size_t count) {
        host::convert(pieces.data() + begin, in.data() + begin, count, factor);
    });
    return whole == pieces;
}

TEST_CASE("A conversion of a long range has the bits of its pieces", "[host][kernel]") {
    CHECK(converts_equally<bfloat16, float>(1.0F));
    CHECK(converts_equally<float, float16>(1.0F));
    CHECK(converts_equally<float16, float>(0.7F));
    CHECK(converts_equally<float, float>(0.7F));
}

/// Counts the elements that differ from converting them one at a time, including guards on both
/// sides that must not change.
template <class To, class From>
std::size_t wrong_at_every_place(float factor) {
    constexpr std::size_t margin = 32;
    std::size_t wrong = 0;
    auto const in = kernel_inputs<From>(4 * margin, 3);
    auto const untouched = from_float<To>(-77.0F);
    for (std::size_t n = 0; n <= 3 * margin; ++n) {
        for (std::size_t to = 0; to < margin; ++to) {
            std::size_t const from = (3 * to + n) % margin;
            Aligned<To> const out(std::vector<To>(n + 2 * margin, untouched));
            host::detail::convert(out.data() + to, in.data() + from, n, factor,
                                  host::detail::streaming_copy_bytes);
            for (std::size_t i = 0; i < n + 2 * margin; ++i) {
                float const value = i < to || i >= to + n ? 0.0F : to_float(in[from + i - to]);
                To const expected =
                    i < to || i >= to + n
                        ? untouched
                        : from_float<To>(factor == 1.0F ? value : canonical(value * factor));
                wrong += std::memcmp(out.data() + i, &expected, sizeof expected) != 0 ? 1 : 0;
            }
        }
    }
    return wrong;
}

TEST_CASE(
    "A conversion past the caches writes every element and no other, at every length and alignment",
    "[host][kernel]") {
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (!scope.is_supported()) {
            continue;
        }
        CAPTURE(host::name_of(set));
        CHECK(wrong_at_every_place<bfloat16, float>(1.0F) == 0);
        CHECK(wrong_at_every_place<float16, float>(1.0F) == 0);
        CHECK(wrong_at_every_place<float, bfloat16>(1.0F) == 0);
        CHECK(wrong_at_every_place<bfloat16, float16>(0.7F) == 0);
        CHECK(wrong_at_every_place<float, float>(0.7F) == 0);
    }
}

TEMPLATE_TEST_CASE("The sum over ranks of a long range has the bits of its pieces",
                   "[host][kernel]", float, bfloat16) {
    std::size_t const n = host::detail::streaming_bytes / (3 * sizeof(TestType)) + 5;
    Aligned<TestType> const first(kernel_inputs<TestType>(n, 1));
    Aligned<TestType> const second(kernel_inputs<TestType>(n, 2));
    Aligned<TestType> const whole(n);
    Aligned<TestType> const pieces(n);
    std::array<TestType const*, 2> const peers{first.data(), second.data()};
    host::sum_ranks(whole.data(), peers.data(), 2, n);
    in_pieces(n, [&](std::size_t begin, std::size_t count) {
        std::array<TestType const*, 2> const parts{first.data() + begin, second.data() + begin};
        host::sum_ranks(pieces.data() + begin, parts.data(), 2, count);
    });
    CHECK(whole == pieces);
    host::sum_ranks(first.data(), peers.data(), 2, n); // into a peer
    CHECK(first == pieces);
}

TEST_CASE("The accumulated sum over ranks of a long range has the bits of its pieces",
          "[host][kernel]") {
    std::size_t const n = host::detail::streaming_bytes / 8 + 5;
    Aligned<bfloat16> const first(kernel_inputs<bfloat16>(n, 1));
    Aligned<bfloat16> const second(kernel_inputs<bfloat16>(n, 2));
    Aligned<float> const whole(n);
    Aligned<float> const pieces(n);
    for (bool const is_added : {false, true}) {
        CAPTURE(is_added);
        std::array<bfloat16 const*, 2> const peers{first.data(), second.data()};
        host::sum_ranks(whole.data(), peers.data(), 2, n, is_added);
        in_pieces(n, [&](std::size_t begin, std::size_t count) {
            std::array<bfloat16 const*, 2> const parts{first.data() + begin, second.data() + begin};
            host::sum_ranks(pieces.data() + begin, parts.data(), 2, count, is_added);
        });
        CHECK(whole == pieces);
    }
}

/// Sums four ranks as a subtree into a range of `A`, and into the range of a rank if it can be.
template <class A, class T>
void check_tree_of_long_range() {
    std::size_t const n = host::detail::streaming_bytes / (4 * sizeof(T) + sizeof(A)) + 5;
    std::array const ranks{Aligned<T>(kernel_inputs<T>(n, 1)), Aligned<T>(kernel_inputs<T>(n, 2)),
                           Aligned<T>(kernel_inputs<T>(n, 3)), Aligned<T>(kernel_inputs<T>(n, 4))};
    Aligned<A> const whole(n);
    Aligned<A> const pieces(n);
    std::array<T const*, 4> peers{};
    auto const point = [&](std::size_t begin) {
        for (std::size_t rank = 0; rank < peers.size(); ++rank) {
            peers.at(rank) = ranks.at(rank).data() + begin;
        }
        return peers.data();
    };
    host::sum_tree(ops::TreeSum<A>{whole.data(), {}}, point(0), 4, n);
    in_pieces(n, [&](std::size_t begin, std::size_t count) {
        host::sum_tree(ops::TreeSum<A>{pieces.data() + begin, {}}, point(begin), 4, count);
    });
    CHECK(whole == pieces);
    if constexpr (std::is_same_v<A, T>) {
        host::sum_tree(ops::TreeSum<A>{ranks[1].data(), {}}, point(0), 4, n);
        CHECK(ranks[1] == pieces);
    }
}

TEST_CASE("A sum as a subtree of a long range has the bits of its pieces", "[host][kernel]") {
    check_tree_of_long_range<float, float>();
    check_tree_of_long_range<float, bfloat16>();
    check_tree_of_long_range<bfloat16, bfloat16>();
    check_tree_of_long_range<float16, float16>();
}

TEST_CASE("The update of a long range has the bits of its pieces", "[host][kernel]") {
    std::size_t const n = host::detail::streaming_bytes / 30 + 5;
    Aligned<float> const gradient(kernel_inputs<float>(n, 1));
    auto const masters = kernel_inputs<float>(n, 2);
    Aligned<float> const whole(masters);
    Aligned<float> const pieces(masters);
    std::array const whole_states{Aligned<float>(n), Aligned<float>(n)};
    std::array const pieces_states{Aligned<float>(n), Aligned<float>(n)};
    Aligned<bfloat16> const whole_parameter(n);
    Aligned<bfloat16> const pieces_parameter(n);
    auto const hyper = AdamW::hyper({}, 0.01, 1);
    host::update<AdamW>(gradient.data(), whole.data(), whole_parameter.data(),
                        std::array{whole_states[0].data(), whole_states[1].data()}, n, 0.5F, hyper);
    in_pieces(n, [&](std::size_t begin, std::size_t count) {
        host::update<AdamW>(
            gradient.data() + begin, pieces.data() + begin, pieces_parameter.data() + begin,
            std::array{pieces_states[0].data() + begin, pieces_states[1].data() + begin}, count,
            0.5F, hyper);
    });
    CHECK(whole == pieces);
    CHECK(whole_parameter == pieces_parameter);
    CHECK(whole_states[0] == pieces_states[0]);
    CHECK(whole_states[1] == pieces_states[1]);
}

} // namespace

} // namespace zero::test::streaming_kernel_test
