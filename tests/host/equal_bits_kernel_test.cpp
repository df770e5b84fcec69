#include "host/kernel_inputs.hpp"
#include "support/tree_root.hpp"

#include <zero/host/kernels.hpp>
#include <zero/host/update.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/sgd.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace zero::test::equal_bits_kernel_test {

// Compares every kernel with an equivalent scalar loop, with every instruction set, every length up
// to 200 and unaligned ranges: main loops, tails and instruction sets give the same bits. Elements
// next to a range must not change.
namespace {

constexpr std::size_t margin = 16;

/// A range of `n` elements that begins `offset` elements after an aligned address, with guards.
template <class T>
class Guarded {
public:
    Guarded(std::vector<T> const& values, std::size_t offset)
        : _all(values.size() + 2 * margin + offset, guard()), _begin(margin + offset),
          _n(values.size()) {
        std::copy(values.begin(), values.end(), _all.begin() + static_cast<std::ptrdiff_t>(_begin));
    }

    T* data() { return _all.data() + _begin; }

    [[nodiscard]] bool holds(std::vector<T> const& expected) const {
        std::vector<T> all(_all.size(), guard());
        std::copy(expected.begin(), expected.end(),
                  all.begin() + static_cast<std::ptrdiff_t>(_begin));
        return expected.size() == _n && same_bits(_all, all);
    }

private:
    static T guard() { return from_float<T>(123.0F); }

    std::vector<T> _all;
    std::size_t _begin;
    std::size_t _n;
};

template <class T>
T stored(float value) {
    return from_float<T>(canonical(value));
}

template <class Body>
int for_all_ranges(Body const& body) {
    int wrong = 0;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (scope.is_supported()) {
            for (std::size_t n = 0; n <= 200; ++n) {
                wrong += body(n, n % 5);
            }
        }
    }
    return wrong;
}

template <class To, class From>
int convert_and_accumulate() {
    return for_all_ranges([](std::size_t n, std::size_t offset) {
        auto const from = kernel_inputs<From>(n, 1);
        auto const before = kernel_inputs<To>(n, 2);
        std::vector<To> converted(n);
        std::vector<To> scaled(n);
        std::vector<To> sum(n);
        for (std::size_t i = 0; i < n; ++i) {
            converted[i] = from_float<To>(to_float(from[i]));
            scaled[i] = stored<To>(to_float(from[i]) * 0.7F);
            sum[i] = stored<To>(to_float(before[i]) + to_float(from[i]));
        }
        Guarded<From> in(from, (offset + 1) % 3);
        int wrong = 0;
        Guarded<To> out(before, offset);
        host::convert(out.data(), in.data(), n, 1.0F);
        wrong += out.holds(converted) ? 0 : 1;
        host::convert(out.data(), in.data(), n, 0.7F);
        wrong += out.holds(scaled) ? 0 : 1;
        Guarded<To> total(before, offset);
        host::accumulate(total.data(), in.data(), n);
        wrong += total.holds(sum) ? 0 : 1;
        wrong += in.holds(from) ? 0 : 1;
        return wrong;
    });
}

TEST_CASE("Conversion and accumulation give the bits of a scalar loop for all pairs of types",
          "[host][kernel]") {
    CHECK(convert_and_accumulate<float, float>() == 0);
    CHECK(convert_and_accumulate<float, bfloat16>() == 0);
    CHECK(convert_and_accumulate<float, float16>() == 0);
    CHECK(convert_and_accumulate<bfloat16, float>() == 0);
    CHECK(convert_and_accumulate<bfloat16, bfloat16>() == 0);
    CHECK(convert_and_accumulate<bfloat16, float16>() == 0);
    CHECK(convert_and_accumulate<float16, float>() == 0);
    CHECK(convert_and_accumulate<float16, bfloat16>() == 0);
    CHECK(convert_and_accumulate<float16, float16>() == 0);
}

TEMPLATE_TEST_CASE("The sum over ranks is formed in rank order and rounded once", "[host][kernel]",
                   float, bfloat16, float16) {
    int const world = GENERATE(1, 2, 3, 8);
    bool const in_place = GENERATE(false, true);
    CAPTURE(world, in_place);
    CHECK(for_all_ranges([&](std::size_t n, std::size_t offset) {
              std::vector<Guarded<TestType>> peers;
              std::vector<std::vector<TestType>> values;
              for (int rank = 0; rank < world; ++rank) {
                  values.push_back(
                      kernel_inputs<TestType>(n, 10U + static_cast<std::uint32_t>(rank)));
                  peers.emplace_back(values.back(), (offset + static_cast<std::size_t>(rank)) % 7);
              }
              std::vector<TestType const*> pointers;
              for (auto& peer : peers) {
                  pointers.push_back(peer.data());
              }
              std::vector<TestType> expected(n);
              for (std::size_t i = 0; i < n; ++i) {
                  float sum = to_float(values[0][i]);
                  for (int rank = 1; rank < world; ++rank) {
                      sum += to_float(values[static_cast<std::size_t>(rank)][i]);
                  }
                  expected[i] = world == 1 ? values[0][i] : stored<TestType>(sum);
              }
              Guarded<TestType> apart(values[0], offset);
              auto& out = in_place ? peers.back() : apart;
              host::sum_ranks(out.data(), pointers.data(), world, n);
              return out.holds(expected) ? 0 : 1;
          })
          == 0);
}

/// Values of each rank, and the table of their addresses.
template <class T>
struct Ranks {
    Ranks(int world, std::size_t n) {
        for (int rank = 0; rank < world; ++rank) {
            values.push_back(kernel_inputs<T>(n, 20U + static_cast<std::uint32_t>(rank)));
        }
        for (auto const& value : values) {
            pointers.push_back(value.data());
        }
    }
    std::vector<std::vector<T>> values;
    std::vector<T const*> pointers;
};

/// Returns the number of ranges for which a sum over ranks with its accumulation differs from the
/// sum, followed by a conversion or an addition.
template <class A, class T>
int sum_and_accumulate(int world) {
    return for_all_ranges([&](std::size_t n, std::size_t offset) {
        Ranks<T> const ranks(world, n);
        auto const& [values, pointers] = ranks;
        std::vector<T> sum(n);
        host::sum_ranks(sum.data(), pointers.data(), world, n);
        auto const before = kernel_inputs<A>(n, 3);
        int wrong = 0;
        for (bool const is_added : {false, true}) {
            auto expected = before;
            if (is_added) {
                host::accumulate(expected.data(), sum.data(), n);
            } else {
                host::convert(expected.data(), sum.data(), n, 1.0F);
            }
            Guarded<A> out(before, offset);
            host::sum_ranks(out.data(), pointers.data(), world, n, is_added);
            wrong += out.holds(expected) ? 0 : 1;
        }
        return wrong;
    });
}

TEST_CASE("A sum over ranks with its accumulation has the bits of the two for all pairs of types",
          "[host][kernel]") {
    int const world = GENERATE(1, 2, 3, 8);
    CAPTURE(world);
    CHECK(sum_and_accumulate<float, float>(world) == 0);
    CHECK(sum_and_accumulate<float, bfloat16>(world) == 0);
    CHECK(sum_and_accumulate<float, float16>(world) == 0);
    CHECK(sum_and_accumulate<bfloat16, float>(world) == 0);
    CHECK(sum_and_accumulate<bfloat16, bfloat16>(world) == 0);
    CHECK(sum_and_accumulate<bfloat16, float16>(world) == 0);
    CHECK(sum_and_accumulate<float16, float>(world) == 0);
    CHECK(sum_and_accumulate<float16, bfloat16>(world) == 0);
    CHECK(sum_and_accumulate<float16, float16>(world) == 0);
}

/// Returns the number of ranges for which a sum as a subtree of micro-batches, with sums that are
/// held, differs from the one that is added straight-line.
template <class A, class T>
int sum_as_subtree(int world, std::size_t group, std::size_t held) {
    return for_all_ranges([&](std::size_t n, std::size_t offset) {
        Ranks<T> const ranks(world, n);
        auto const& [values, pointers] = ranks;
        std::size_t const stride = n + 3;
        auto const oldest = kernel_inputs<float>(n, 3);
        auto const newer = kernel_inputs<float>(2 * stride, 4);
        std::vector<A> expected(n);
        for (std::size_t i = 0; i < n; ++i) {
            std::vector<float> leaves;
            for (auto const& value : values) {
                leaves.push_back(to_float(value[i]));
            }
            float sum = tree_root(leaves, group);
            for (std::size_t number = held; number-- > 0;) {
                sum = (number == 0 ? oldest[i] : newer[(number - 1) * stride + i]) + sum;
            }
            bool const is_sum = leaves.size() + held > 1;
            expected[i] = is_sum ? stored<A>(sum) : from_float<A>(sum);
            if constexpr (std::is_same_v<A, T>) {
                expected[i] = is_sum ? expected[i] : values[0][i];
            }
        }
        int wrong = 0;
        for (bool const is_in_place : {false, true}) { // over the oldest
            if constexpr (!std::is_same_v<A, float>) {
                if (is_in_place) {
                    continue;
                }
            }
            std::vector<A> before(n);
            for (std::size_t i = 0; i < n; ++i) {
                before[i] = from_float<A>(oldest[i]);
            }
            Guarded<A> out(before, offset);
            ops::HeldSums sums{oldest.data(), newer.data(), stride, held, group};
            if constexpr (std::is_same_v<A, float>) {
                sums.oldest = is_in_place ? out.data() : sums.oldest;
            }
            host::sum_tree(ops::TreeSum<A>{out.data(), sums}, pointers.data(), world, n);
            wrong += out.holds(expected) ? 0 : 1;
        }
        return wrong;
    });
}

TEST_CASE("A sum as a subtree of micro-batches is added as it is defined, and rounded once",
          "[host][kernel]") {
    std::size_t const held = GENERATE(0U, 1U, 3U);
    auto const [world, group] = GENERATE(table<int, std::size_t>(
        {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {4, 1}, {6, 3}, {8, 1}, {8, 8}, {12, 3}, {16, 1}}));
    CAPTURE(world, group, held);
    CHECK(sum_as_subtree<float, float>(world, group, held) == 0);
    CHECK(sum_as_subtree<float, bfloat16>(world, group, held) == 0);
    CHECK(sum_as_subtree<float, float16>(world, group, held) == 0);
    CHECK(sum_as_subtree<bfloat16, bfloat16>(world, group, held) == 0);
    CHECK(sum_as_subtree<float16, float>(world, group, held) == 0);
}

TEST_CASE("A sum over ranks is rounded to their type before it is accumulated", "[host][kernel]") {
    // 1 + 2^-9 is not a bfloat16 number. A sum accumulated without rounding would keep the 2^-9.
    std::vector<bfloat16> const one(40, from_float<bfloat16>(1.0F));
    std::vector<bfloat16> const small(40, from_float<bfloat16>(0x1p-9F));
    std::array<bfloat16 const*, 2> const peers{one.data(), small.data()};
    std::vector<float> sum(40, 0.5F);
    host::sum_ranks(sum.data(), peers.data(), 2, sum.size(), true);
    CHECK(sum == std::vector<float>(40, 1.5F));
}

TEST_CASE("Three terms are added in rank order", "[host][kernel]") {
    float const large = 0x1p24F;
    std::vector<std::vector<float>> const values{std::vector<float>(100, 1.0F),
                                                 std::vector<float>(100, large),
                                                 std::vector<float>(100, -large)};
    std::array<float const*, 3> const peers{values[0].data(), values[1].data(), values[2].data()};
    std::vector<float> out(100);
    host::sum_ranks(out.data(), peers.data(), 3, out.size());
    CHECK(out == std::vector<float>(100, 0.0F)); // (1 + 2^24) - 2^24; any other order gives 1
}

/// An optimizer that adds a product of hyper-parameters to another number.
struct ScaledSgd : Sgd {
    template <class F>
    void operator()(F gradient, F& parameter, F (&)[states], Hyper const& hyper) const {
        float const scale =
            ops::add(ops::mul(hyper.negative_learning_rate, hyper.momentum), hyper.weight_decay);
        float const other = ops::sub(ops::mul(hyper.momentum, hyper.weight_decay), scale);
        parameter = ops::add(ops::mul(gradient, other), parameter);
    }
};

TEST_CASE("A product of two scalars that is added to a third is rounded with every instruction set",
          "[host][kernel]") {
    float volatile product = 0.0F; // a volatile product cannot be fused
    int wrong = 0;
    int fused = 0;
    for (int i = 0; i < 200; ++i) {
        auto const hyper =
            Sgd::hyper({.momentum = 0.9, .weight_decay = 0.01 + i * 1e-5}, 1e-2 + i * 1e-4, 1);
        product = hyper.negative_learning_rate * hyper.momentum;
        float const scale = product + hyper.weight_decay;
        product = hyper.momentum * hyper.weight_decay;
        float const other = product - scale;
        fused += other
                         == std::fma(hyper.momentum, hyper.weight_decay,
                                     -std::fma(hyper.negative_learning_rate, hyper.momentum,
                                               hyper.weight_decay))
                     ? 0
                     : 1;
        for (auto const set : instruction_sets) {
            WithInstructionSet const scope(set);
            std::vector<float> gradient(11, 1.0F);
            std::vector<float> parameter(11, 0.0F);
            std::vector<float> momentum(11, 0.0F);
            host::update<ScaledSgd>(gradient.data(), parameter.data(), static_cast<float*>(nullptr),
                                    {momentum.data()}, parameter.size(), 1.0F, hyper);
            for (float const value : parameter) {
                wrong += value == other ? 0 : 1;
            }
        }
    }
    CHECK(wrong == 0);
    CHECK(fused > 50); // so a fused addition would show
}

template <class Optimizer, class A, class M, class P>
int update(bool is_own_master) {
    typename Optimizer::Options options;
    options.weight_decay = 0.1;
    auto const hyper = Optimizer::hyper(options, 0.01, 3);
    return for_all_ranges([&](std::size_t n, std::size_t offset) {
        auto const gradient = kernel_inputs<A>(n, 21);
        auto const master = kernel_inputs<M>(n, 22);
        auto const parameter = kernel_inputs<P>(n, 23);
        std::vector<std::vector<float>> states;
        for (std::uint32_t s = 0; s < Optimizer::states; ++s) {
            states.push_back(kernel_inputs<float>(n, 24 + s));
            for (auto& x : states.back()) {
                x = s == 1 ? std::fabs(x) : x;
            }
        }
        auto expected_master = master;
        auto expected_parameter = parameter;
        auto expected_states = states;
        for (std::size_t i = 0; i < n; ++i) {
            float value = to_float(master[i]);
            float state[Optimizer::states];
            for (std::size_t s = 0; s < Optimizer::states; ++s) {
                state[s] = states[s][i];
            }
            Optimizer{}(ops::mul(to_float(gradient[i]), 0.125F), value, state, hyper);
            expected_master[i] = stored<M>(value);
            expected_parameter[i] = stored<P>(value);
            for (std::size_t s = 0; s < Optimizer::states; ++s) {
                expected_states[s][i] = canonical(state[s]);
            }
        }
        Guarded<A> g(gradient, offset);
        Guarded<M> m(master, (offset + 1) % 3);
        Guarded<P> p(parameter, (offset + 2) % 7);
        std::vector<Guarded<float>> guarded_states;
        for (auto const& state : states) {
            guarded_states.emplace_back(state, offset % 2);
        }
        std::array<float*, Optimizer::states> pointers;
        for (std::size_t s = 0; s < Optimizer::states; ++s) {
            pointers[s] = guarded_states[s].data();
        }
        host::update<Optimizer>(g.data(), m.data(),
                                is_own_master ? static_cast<P*>(nullptr) : p.data(), pointers, n,
                                0.125F, hyper);
        int wrong = m.holds(expected_master) ? 0 : 1;
        wrong += p.holds(is_own_master ? parameter : expected_parameter) ? 0 : 1;
        wrong += g.holds(gradient) ? 0 : 1;
        for (std::size_t s = 0; s < Optimizer::states; ++s) {
            wrong += guarded_states[s].holds(expected_states[s]) ? 0 : 1;
        }
        return wrong;
    });
}

TEST_CASE("The fused update gives the bits of the functor applied element by element",
          "[host][kernel]") {
    CHECK(update<AdamW, float, float, bfloat16>(false) == 0);
    CHECK(update<AdamW, float, float, float>(true) == 0);
    CHECK(update<AdamW, bfloat16, float, float16>(false) == 0);
    CHECK(update<AdamW, float, float16, float16>(false) == 0);
    CHECK(update<AdamW, float, float16, bfloat16>(false) == 0);
    CHECK(update<AdamW, float16, bfloat16, bfloat16>(true) == 0);
    CHECK(update<Sgd, float, float, bfloat16>(false) == 0);
    CHECK(update<Sgd, bfloat16, float, float>(true) == 0);
    CHECK(update<Sgd, float16, float16, float16>(true) == 0);
}

// A user's functor that uses every operation.
struct Clamped {
    using policy_category = OptimizerCategory;
    struct Options {
        double weight_decay = 0.0;
    };
    static constexpr std::size_t states = 1;
    struct Hyper {
        float rate;
        float limit;
    };
    static Hyper hyper(Options const&, double learning_rate, std::uint64_t) {
        return {static_cast<float>(learning_rate), 0.5F};
    }

    template <class F>
    void operator()(F gradient, F& parameter, F (&state)[states], Hyper const& hyper) const {
        F const size = ops::root(ops::mul(gradient, gradient));
        F const kept =
            ops::select(ops::less(hyper.limit, size), ops::div(gradient, size), gradient);
        state[0] = ops::select(ops::less_equal(state[0], 0.0F), kept, ops::add(state[0], kept));
        parameter =
            ops::sub(parameter, ops::mul(hyper.rate,
                                         state[0])); // a product in a sum: still two roundings
    }
};

TEST_CASE("A user's functor gives the same bits in packs and per element, even where it could be "
          "contracted",
          "[host][kernel]") {
    CHECK(update<Clamped, float, float, bfloat16>(false) == 0);
    CHECK(update<Clamped, float, float, float>(true) == 0);
}

struct Stateless {
    using policy_category = OptimizerCategory;
    static constexpr std::size_t states = 0;
    struct Hyper {
        float rate;
    };
    template <class F, class State>
    void operator()(F gradient, F& parameter, State&, Hyper const& hyper) const {
        parameter = ops::fma(hyper.rate, gradient, parameter);
    }
};

TEST_CASE("An optimizer may have no state", "[host][kernel]") {
    std::vector<float> const gradient(19, 2.0F);
    std::vector<float> parameter(19, 1.0F);
    host::update<Stateless>(gradient.data(), parameter.data(), static_cast<float*>(nullptr), {},
                            parameter.size(), 0.5F, {-0.25F});
    CHECK(parameter == std::vector<float>(19, 0.75F));
}

} // namespace

} // namespace zero::test::equal_bits_kernel_test
