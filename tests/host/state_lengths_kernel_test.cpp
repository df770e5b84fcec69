#include "host/kernel_inputs.hpp"
#include "support/catch.hpp"

#include <zero/host/host_backend.hpp>
#include <zero/host/inline_queue.hpp>
#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/counter_random.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

// The length of updates with states in 16 and 8 bits compared with those with float states, for
// every optimizer: the table of docs/optimizers.md.

namespace zero::test::state_lengths_kernel_test {

namespace {

constexpr std::size_t steps = 4000;
constexpr std::size_t counted = steps / 4; ///< the last steps, whose updates are measured

enum class Gradients { normal, heavy_tails, one_step_in_20, fall };
constexpr std::array<Gradients, 4> kinds{Gradients::normal, Gradients::heavy_tails,
                                         Gradients::one_step_in_20, Gradients::fall};

/// Returns the gradients of all steps, one step after the other.
std::vector<float> gradients_of(Gradients kind, std::size_t elements) {
    std::mt19937 engine(7);
    std::normal_distribution<float> normal;
    std::student_t_distribution<float> heavy(3.0F);
    std::vector<float> all;
    for (std::size_t step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < elements; ++i) {
            bool const is_zero = kind == Gradients::one_step_in_20 && step % 20 != 0;
            float const size = kind == Gradients::fall && step >= steps / 4 ? 0.01F : 1.0F;
            all.push_back(is_zero                          ? 0.0F
                          : kind == Gradients::heavy_tails ? heavy(engine)
                                                           : size * normal(engine));
        }
    }
    return all;
}

/// Owns the states of one parameter.
template <class S, std::size_t n>
struct Kept {
    using Pointers = StatePointers<n, S>;
    explicit Kept(std::size_t elements) : values(n * elements) {
        for (std::size_t s = 0; s < n; ++s) {
            at.states[s] = values.data() + s * elements;
        }
    }
    std::vector<S> values;
    Pointers at;
};

template <std::size_t n, class S = float16>
struct Scaled : Kept<S, n> {
    using Pointers = ScaledStatePointers<n, S>;
    explicit Scaled(std::size_t elements)
        : Kept<S, n>(elements), scales(n * (elements / 64), 1.0F) {
        scaled.states = this->at.states;
        for (std::size_t s = 0; s < n; ++s) {
            scaled.scales[s] = scales.data() + s * (elements / 64);
        }
    }
    std::vector<float> scales;
    Pointers scaled;
};

template <class Hyper>
struct Group {
    Hyper hyper;
};

/// Returns the sum of the lengths of the last updates.
/// @param rows of the parameter; 0: not a matrix
template <class Optimizer, class Pointers>
double length(Pointers const& states, std::vector<float> const& gradients, std::size_t rows,
              typename Optimizer::Options const& options) {
    using Slice = UpdateSlice<float, MasterPointers<float, float>, Pointers>;
    std::size_t const elements = gradients.size() / steps;
    std::vector<float> weight(elements, 1.0F);
    std::vector<float> scratch(4096);
    Slice slice;
    slice.master = weight.data();
    slice.elements = elements;
    slice.rows = rows;
    slice.scratch = scratch.data();
    static_cast<Pointers&>(slice) = states;
    host::InlineQueue queue;
    double sum = 0.0;
    for (std::size_t step = 0; step < steps; ++step) {
        slice.gradient = gradients.data() + step * elements;
        Group<typename Optimizer::Hyper> const group{Optimizer::hyper(options, 1e-3, step + 1)};
        UpdateDecision const decision{.random_key = ops::random_key(0, step + 1)};
        std::vector<float> const before = weight;
        HostBackend::update<Optimizer>(&queue, std::span<Slice const>(&slice, 1), &group,
                                       &decision);
        double squares = 0.0;
        for (std::size_t i = 0; i < elements; ++i) {
            double const change = static_cast<double>(weight[i]) - static_cast<double>(before[i]);
            squares += change * change;
        }
        sum += step >= steps - counted ? std::sqrt(squares) : 0.0;
    }
    return sum;
}

/// The lengths of one optimizer relative to float states, by kind of gradients.
using Ratios = std::array<double, kinds.size()>;

struct Lengths {
    Ratios bfloat16, scaled, eight_bits, bfloat16_to_nearest, scaled_to_nearest;
};

template <class Optimizer>
Lengths lengths(typename Optimizer::Options options) {
    options.weight_decay = 0.0; // is no part of the update that moments make
    constexpr std::size_t n = Optimizer::states;
    std::size_t const elements = Optimizer::whole_tensor ? 256 : 1024;
    std::size_t const rows = Optimizer::whole_tensor ? 16 : 0;
    Lengths result{};
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        auto const gradients = gradients_of(kinds[kind], elements);
        auto const of = [&](auto const& pointers) {
            return length<Optimizer>(pointers, gradients, rows, options);
        };
        double const exact = of(Kept<float, n>(elements).at);
        Kept<bfloat16, n> stochastic(elements);
        result.bfloat16[kind] =
            of(StochasticStates<StatePointers<n, bfloat16>>{stochastic.at, 0, 0}) / exact;
        result.bfloat16_to_nearest[kind] = of(Kept<bfloat16, n>(elements).at) / exact;
        if constexpr (!Optimizer::whole_tensor) { // works on plain arrays
            Scaled<n> scaled(elements);
            result.scaled[kind] =
                of(StochasticStates<ScaledStatePointers<n>>{scaled.scaled, 0, 0}) / exact;
            Scaled<n, power8> eight(elements);
            result.eight_bits[kind] =
                of(StochasticStates<ScaledStatePointers<n, power8>>{eight.scaled, 0, 0}) / exact;
            result.scaled_to_nearest[kind] = of(Scaled<n>(elements).scaled) / exact;
        }
    }
    return result;
}

/// Returns the ratio that is farthest from 1, as the page prints it.
std::string farthest(Ratios const& ratios) {
    double worst = 1.0;
    for (double const ratio : ratios) {
        worst = std::fabs(std::log(ratio)) > std::fabs(std::log(worst)) ? ratio : worst;
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), worst < 10.0 ? "%.2f" : "%.0f", worst);
    return ratios[0] == 0.0 ? "refused" : text.data();
}

/// Returns the four cells of a row of the page.
std::string cells(Lengths const& found) {
    return farthest(found.bfloat16) + " | " + farthest(found.scaled) + " | "
           + farthest(found.eight_bits) + " | " + farthest(found.bfloat16_to_nearest);
}

std::string row(std::string const& optimizer, std::string const& decay, std::string const& cells) {
    return "| " + optimizer + " | " + decay + " | " + cells + " |\n";
}

bool is_near(Ratios const& ratios, double most = 1.02) {
    bool result = true;
    for (double const ratio : ratios) {
        result = result && ratio >= 0.98 && ratio <= most;
    }
    return result;
}

/// Returns the rows of an optimizer, of which decay rates with equal cells share one, and checks
/// that stochastic rounding keeps the length of updates.
template <class Optimizer>
std::string rows(std::string const& name, std::string const& option,
                 double Optimizer::Options::*member, std::vector<char const*> const& rates) {
    std::string text;
    std::string decays;
    std::string shared;
    for (char const* const rate : rates) {
        typename Optimizer::Options options{};
        options.*member = std::stod(rate);
        Lengths const found = lengths<Optimizer>(options);
        CAPTURE(name, rate);
        CHECK(is_near(found.bfloat16));
        CHECK((Optimizer::whole_tensor || is_near(found.scaled)));
        CHECK(
            (Optimizer::whole_tensor || is_near(found.eight_bits, name == "`Sgd`" ? 1.08 : 1.02)));
        std::string const own = cells(found);
        if (!decays.empty() && own != shared) {
            text += row(name, decays, shared);
            decays.clear();
        }
        decays += (decays.empty() ? option + " " : ", ") + rate;
        shared = own;
    }
    return text + row(name, decays, shared);
}

} // namespace

TEST_CASE("Updates with 16-bit and 8-bit states have 0.98 to 1.02 of the length of those with "
          "float states, "
          "as the page prints",
          "[host][kernel]") {
    std::string table;
    std::vector<char const*> const rates{"0.9", "0.99", "0.999", "0.9999"};
    table += rows<AdamW>("`AdamW`, `Adam`", "beta2", &AdamWOptions::beta2, rates);
    CHECK(rows<Adam>("`AdamW`, `Adam`", "beta2", &AdamOptions::beta2, rates) == table);
    (void)rows<Lamb>("`Lamb`", "beta2", &LambOptions::beta2, rates);
    Lengths const adagrad = lengths<Adagrad>({});
    CHECK(is_near(adagrad.bfloat16));
    CHECK(is_near(adagrad.scaled));
    CHECK(is_near(adagrad.eight_bits));
    table += row("`Adagrad`", "none", cells(adagrad));
    table += rows<Sgd>("`Sgd`", "momentum", &SgdOptions::momentum, {"0.9", "0.99", "0.999"});
    table += rows<Lion>("`Lion`", "beta2", &LionOptions::beta2, {"0.99", "0.999"});
    (void)rows<Muon>("`Muon`", "momentum", &MuonOptions::momentum, {"0.95", "0.99"});
    std::ifstream page(ZERO_SOURCE_DIR "/docs/optimizers.md");
    std::string const text{std::istreambuf_iterator<char>(page), {}};
    INFO(table);
    CHECK(text.find(table) != std::string::npos);
}

namespace {

/// Returns the moments after three steps. @param first number of the first element in the model
template <class Optimizer>
std::vector<bfloat16> moments(std::uint64_t first) {
    constexpr std::size_t elements = 5000; // a norm takes 2048 at a time
    using Pointers = StochasticStates<StatePointers<2, bfloat16>>;
    using Slice = UpdateSlice<float, MasterPointers<float, float>, Pointers>;
    Kept<bfloat16, 2> states(elements);
    std::vector<float> weight(elements, 1.0F);
    auto const gradient = kernel_inputs<float>(elements, 3);
    Slice slice;
    slice.master = weight.data();
    slice.elements = elements;
    slice.gradient = gradient.data();
    static_cast<Pointers&>(slice) = {states.at, first, 0};
    host::InlineQueue queue;
    for (std::uint64_t step = 1; step <= 3; ++step) {
        Group<typename Optimizer::Hyper> const group{Optimizer::hyper({}, 1e-3, step)};
        UpdateDecision const decision{.random_key = ops::random_key(0, step)};
        HostBackend::update<Optimizer>(&queue, std::span<Slice const>(&slice, 1), &group,
                                       &decision);
    }
    return states.values;
}

} // namespace

TEST_CASE("An optimizer of whole parameters rounds each moment like an element-wise one",
          "[host][kernel]") {
    auto const expected = moments<AdamW>(900);
    CHECK(same_bits(moments<Lamb>(900), expected)); // the rule of the moments is the same
    CHECK_FALSE(same_bits(moments<Lamb>(901), expected));
}

TEST_CASE("With AdamW's default decay, moments rounded to nearest make updates too short",
          "[host][kernel]") {
    Lengths const found = lengths<AdamW>({});
    CHECK(found.bfloat16_to_nearest[0] < 0.9);
    CHECK(found.bfloat16_to_nearest[1] < 0.75);
    CHECK(found.bfloat16_to_nearest[2] < 0.6);
    CHECK(found.bfloat16_to_nearest[3] < 0.3);
    CHECK(found.scaled_to_nearest[3] < 0.95);
    CHECK(is_near(found.bfloat16));
    CHECK(is_near(found.scaled));
}

} // namespace zero::test::state_lengths_kernel_test
