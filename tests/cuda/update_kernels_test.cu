#include "cuda/mirror.hpp"

#include <zero/cuda/backend.cuh>
#include <zero/host/host_backend.hpp>
#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

// The update with every form of weights and states: the device gives the bits of the host's loops
// in the updated elements and in the memory next to them.

namespace zero::test::update_kernels_test {

namespace {

using Device = cuda::Backend;

template <class Optimizer>
struct Group {
    typename Optimizer::Hyper hyper;
};

std::size_t blocks_of(std::size_t elements) {
    return (elements + 63) / 64;
}

struct Place {
    std::size_t begin;
    std::size_t block; ///< block of 64 elements, counted from the start of each slice
    std::size_t length;
    std::size_t rows = 0; ///< 0: not a matrix
};

struct Places {
    std::vector<Place> list;
    std::size_t elements = 0;
    std::size_t blocks = 0;
    std::size_t gradient_begin = 0; ///< elements before the gradients

    /// @param begin must not be before the end of the last place
    void add(std::size_t begin, std::size_t length, std::size_t rows = 0) {
        list.push_back({begin, blocks, length, rows});
        elements = begin + length;
        blocks += blocks_of(length);
    }
};

/// Consecutive parts of parameters; later ones are not aligned.
Places consecutive_places() {
    Places all;
    for (std::size_t const length :
         {64U, 8192U, 8192U + 2048U + 24U, 192U, 13U, 1U, 100U, 0U, 20000U, 777U}) {
        all.add(all.elements, length);
    }
    return all;
}

/// Every length near a pack at every alignment.
Places places_near_packs() {
    Places all;
    for (std::size_t length = 0; length <= 33; ++length) {
        for (std::size_t offset = 0; offset < 8; ++offset) {
            all.add((all.elements + 7) / 8 * 8 + offset, length);
        }
    }
    return all;
}

/// Aligned parts, except for their gradients.
Places places_of_odd_gradients() {
    Places all;
    for (std::size_t const length :
         {1U, 63U, 64U, 65U, 255U, 256U, 257U, 2049U, 8192U + 2048U + 77U}) {
        all.add((all.elements + 63) / 64 * 64, length);
    }
    all.gradient_begin = 1;
    return all;
}

/// Matrices of few and of several tiles between parameters that are none.
Places places_of_matrices() {
    Places all;
    all.add(0, 13);
    all.add(13, 8192 + 2048 + 24);
    for (auto const& [rows, columns] : {std::pair(1U, 1U), {1U, 70U}, {70U, 1U}, {64U, 64U}}) {
        all.add(all.elements, std::size_t{rows} * columns, rows);
    }
    all.add((all.elements + 63) / 64 * 64, 777);
    all.add(all.elements, 0);
    for (auto const& [rows, columns] : {std::pair(66U, 133U), {133U, 66U}, {3U, 5000U}}) {
        all.add((all.elements + 63) / 64 * 64, std::size_t{rows} * columns, rows);
    }
    all.add(all.elements, 100);
    return all;
}

template <class T>
std::vector<T> finite_inputs(std::size_t n, std::uint32_t seed) {
    auto values = kernel_inputs<T>(n, seed);
    for (auto& value : values) {
        value = std::isfinite(to_float(value)) ? value : from_float<T>(0.5F);
    }
    return values;
}

/// @name Weights and states, on both sides
/// @{

template <class M, class P>
struct Masters {
    using Pointers = MasterPointers<M, P>;
    explicit Masters(Places const& all)
        : master(finite_inputs<M>(all.elements, 1)), parameter(kernel_inputs<P>(all.elements, 2)) {}
    Pointers host(Place const& at) {
        return {master.host(at.begin), std::is_same_v<M, P> ? nullptr : parameter.host(at.begin)};
    }
    Pointers device(Place const& at) {
        return {master.device(at.begin),
                std::is_same_v<M, P> ? nullptr : parameter.device(at.begin)};
    }
    bool agree() { return master.agrees() && parameter.agrees(); }
    Mirror<M> master;
    Mirror<P> parameter;
};

struct Split {
    using Pointers = SplitPointers;
    explicit Split(Places const& all)
        : parameter(finite_inputs<bfloat16>(all.elements, 1)),
          remainder(std::vector<std::uint16_t>(all.elements, 77)),
          bits(std::vector<std::uint8_t>(8 * all.blocks, 0xff)) {
        for (std::size_t i = 0; i < all.elements; ++i) {
            remainder.host()[i] = static_cast<std::uint16_t>(i * 40503U);
        }
        copy_to_device(remainder.device(), remainder.host(), all.elements);
    }
    Pointers host(Place const& at) {
        return {parameter.host(at.begin), remainder.host(at.begin), bits.host(8 * at.block)};
    }
    Pointers device(Place const& at) {
        return {parameter.device(at.begin), remainder.device(at.begin), bits.device(8 * at.block)};
    }
    bool agree() { return parameter.agrees() && remainder.agrees() && bits.agrees(); }
    Mirror<bfloat16> parameter;
    Mirror<std::uint16_t> remainder;
    Mirror<std::uint8_t> bits;
};

template <class P>
struct Stochastic {
    using Pointers = StochasticPointers<P>;
    explicit Stochastic(Places const& all) : parameter(finite_inputs<P>(all.elements, 1)) {}
    Pointers host(Place const& at) {
        return {parameter.host(at.begin), (std::uint64_t{1} << 32U) - 100 + at.begin, 0};
    }
    Pointers device(Place const& at) {
        return {parameter.device(at.begin), (std::uint64_t{1} << 32U) - 100 + at.begin, 0};
    }
    bool agree() { return parameter.agrees(); }
    Mirror<P> parameter;
};

template <std::size_t n, class S>
struct States {
    using Pointers = StatePointers<n, S>;
    explicit States(Places const& all) {
        for (std::size_t s = 0; s < n; ++s) {
            states.emplace_back(std::vector<S>(all.elements));
        }
    }
    Pointers host(Place const& at) {
        Pointers pointers;
        for (std::size_t s = 0; s < n; ++s) {
            pointers.states[s] = states[s].host(at.begin);
        }
        return pointers;
    }
    Pointers device(Place const& at) {
        Pointers pointers;
        for (std::size_t s = 0; s < n; ++s) {
            pointers.states[s] = states[s].device(at.begin);
        }
        return pointers;
    }
    bool agree() {
        return std::all_of(states.begin(), states.end(),
                           [](auto const& state) { return state.agrees(); });
    }
    std::vector<Mirror<S>> states;
};

template <std::size_t n, class S = float16>
struct ScaledStates : States<n, S> {
    using Pointers = ScaledStatePointers<n, S>;
    explicit ScaledStates(Places const& all) : States<n, S>(all) {
        for (std::size_t s = 0; s < n; ++s) {
            scales.emplace_back(std::vector<float>(all.blocks, 1.0F));
        }
    }
    Pointers host(Place const& at) {
        Pointers pointers{States<n, S>::host(at), {}};
        for (std::size_t s = 0; s < n; ++s) {
            pointers.scales[s] = scales[s].host(at.block);
        }
        return pointers;
    }
    Pointers device(Place const& at) {
        Pointers pointers{States<n, S>::device(at), {}};
        for (std::size_t s = 0; s < n; ++s) {
            pointers.scales[s] = scales[s].device(at.block);
        }
        return pointers;
    }
    bool agree() {
        return States<n, S>::agree()
               && std::all_of(scales.begin(), scales.end(),
                              [](auto const& scale) { return scale.agrees(); });
    }
    std::vector<Mirror<float>> scales;
};

/// States that are rounded stochastically.
template <class Plain>
struct Rounded : Plain {
    using Pointers = StochasticStates<typename Plain::Pointers>;
    using Plain::Plain;
    Pointers host(Place const& at) {
        return {Plain::host(at), (std::uint64_t{1} << 32U) - 1000 + at.begin, 0};
    }
    Pointers device(Place const& at) {
        return {Plain::device(at), (std::uint64_t{1} << 32U) - 1000 + at.begin, 0};
    }
};

/// @}

/// An optimizer whose first calls have no work.
struct EmptyCalls : Lamb {
    ZERO_NO_SIDE_CHECK
    template <class Tensor>
    ZERO_HOST_DEVICE static void update_tensor(Tensor const& tensor, Hyper const& hyper) noexcept {
        tensor.scale(tensor.scratch(), 0, 2.0F);
        tensor.transpose(tensor.scratch(), tensor.scratch(), 0, 3);
        Lamb::update_tensor(tensor, hyper);
    }
};

/// Floats of the scratch memory that the updates of all parameters need, on either side.
template <class Optimizer>
std::size_t scratch_of(Places const& all) {
    std::size_t most = 0;
    if constexpr (Optimizer::whole_tensor) {
        for (Place const& at : all.list) {
            std::size_t const columns = at.rows == 0 ? at.length : at.length / at.rows;
            most =
                std::max(most, all.list.size() * Device::norm_floats<Optimizer>(at.length, at.rows)
                                   + Optimizer::scratch_floats(at.rows, columns));
        }
    }
    return most;
}

/// Runs three steps on both sides.
template <class Optimizer, class A, class W, class S>
void compare_updates(Places const& all) {
    using Slice = UpdateSlice<A, typename W::Pointers, typename S::Pointers>;
    W weights(all);
    S states(all);
    cuda::OwnedStream const stream;
    host::InlineQueue queue;
    std::vector<float> host_scratch(scratch_of<Optimizer>(all));
    DeviceArray<float> const scratch(host_scratch.size());
    for (std::uint64_t step = 1; step <= 3; ++step) {
        std::size_t const gradients = all.gradient_begin + all.elements;
        // A number that is not finite spoils a whole parameter.
        Mirror<A> gradient(step == (Optimizer::whole_tensor ? 3 : 2)
                               ? kernel_inputs<A>(gradients, 5)
                               : finite_inputs<A>(gradients, static_cast<std::uint32_t>(step)));
        std::vector<Slice> on_host_side;
        std::vector<Slice> on_device_side;
        for (Place const& at : all.list) {
            Slice slice;
            slice.elements = at.length;
            slice.group = on_host_side.size() % 2;
            slice.rows = at.rows;
            slice.scratch = host_scratch.data();
            static_cast<typename W::Pointers&>(slice) = weights.host(at);
            static_cast<typename S::Pointers&>(slice) = states.host(at);
            slice.gradient = gradient.host(all.gradient_begin + at.begin);
            on_host_side.push_back(slice);
            static_cast<typename W::Pointers&>(slice) = weights.device(at);
            static_cast<typename S::Pointers&>(slice) = states.device(at);
            slice.gradient = gradient.device(all.gradient_begin + at.begin);
            slice.scratch = scratch.data();
            on_device_side.push_back(slice);
        }
        typename Optimizer::Options options{};
        std::vector<Group<Optimizer>> const groups{{Optimizer::hyper(options, 0.01, step)},
                                                   {Optimizer::hyper(options, 0.3, step)}};
        UpdateDecision const decision{.factor = 0.37F, .skip = false, .random_key = 12345 + step};
        DeviceArray<Group<Optimizer>> const device_groups(groups);
        DeviceArray<UpdateDecision> const device_decision(std::vector<UpdateDecision>{decision});
        Device::SliceTable<Slice> const table(stream.get(), Device::default_memory(),
                                              zero::detail::List<Slice>(on_device_side));
        Device::update<Optimizer>(stream.get(), table.all(), device_groups.data(),
                                  device_decision.data());
        HostBackend::update<Optimizer>(&queue, std::span<Slice const>(on_host_side), groups.data(),
                                       &decision);
        CHECK(weights.agree());
        CHECK(states.agree());
    }
}

template <class Optimizer, class A, class W, class S>
void compare_updates() {
    compare_updates<Optimizer, A, W, S>(consecutive_places());
    compare_updates<Optimizer, A, W, S>(places_near_packs());
    compare_updates<Optimizer, A, W, S>(places_of_odd_gradients());
}

/// A row of hyper-parameters that a step may leave.
template <class Optimizer>
struct LeavableGroup : Group<Optimizer> {
    bool is_left;
};

template <class Optimizer>
void check_steps_without_effect() {
    using W = Masters<float, bfloat16>;
    using S = States<2, float>;
    using Slice = UpdateSlice<float, W::Pointers, S::Pointers>;
    Places all;
    all.add(0, 20000, 100);
    W weights(all);
    S states(all);
    Mirror<float> const gradient(finite_inputs<float>(all.elements, 1));
    DeviceArray<float> const scratch(scratch_of<Optimizer>(all));
    Slice slice;
    slice.elements = 20000;
    slice.rows = 100;
    slice.scratch = scratch.data();
    static_cast<W::Pointers&>(slice) = weights.device(all.list[0]);
    static_cast<S::Pointers&>(slice) = states.device(all.list[0]);
    slice.gradient = gradient.device();
    cuda::OwnedStream const stream;
    Device::SliceTable<Slice> const table(stream.get(), Device::default_memory(), {slice});
    for (auto const& [skip, is_left] : {std::pair(true, false), {false, true}, {false, false}}) {
        CAPTURE(skip, is_left);
        DeviceArray<LeavableGroup<Optimizer>> const groups(
            std::vector<LeavableGroup<Optimizer>>{{{Optimizer::hyper({}, 0.01, 1)}, is_left}});
        DeviceArray<UpdateDecision> const decision(
            std::vector<UpdateDecision>{{.factor = 1.0F, .skip = skip}});
        Device::update<Optimizer>(stream.get(), table.all(), groups.data(), decision.data());
        bool const has_effect = !skip && !is_left; // the comparison sees a change
        CHECK(weights.agree() == !has_effect);
        CHECK(states.agree() == !has_effect);
    }
}

} // namespace

TEST_CASE("A device updates every form of weights to the bits of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare_updates<AdamW, float, Masters<float, bfloat16>, States<2, float>>();
    compare_updates<AdamW, float, Masters<float, float16>, States<2, float>>();
    compare_updates<AdamW, float, Masters<float16, bfloat16>, States<2, float>>();
    compare_updates<AdamW, float, Masters<float, float>, States<2, float>>();
    compare_updates<AdamW, bfloat16, Masters<bfloat16, bfloat16>, States<2, float>>();
    compare_updates<AdamW, float, Split, States<2, float>>();
    compare_updates<AdamW, float, Stochastic<bfloat16>, States<2, float>>();
    compare_updates<AdamW, float, Stochastic<float16>, States<2, float>>();
}

TEST_CASE("A device keeps every form of states to the bits of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare_updates<AdamW, float, Masters<float, bfloat16>, States<2, bfloat16>>();
    compare_updates<AdamW, float, Masters<float, bfloat16>, ScaledStates<2>>();
    compare_updates<AdamW, float, Split, ScaledStates<2>>();
    compare_updates<AdamW, float, Masters<float, bfloat16>, Rounded<States<2, bfloat16>>>();
    compare_updates<Adagrad, float, Masters<float, bfloat16>,
                    Rounded<States<Adagrad::states, bfloat16>>>();
    compare_updates<AdamW, float, Stochastic<bfloat16>, Rounded<States<2, bfloat16>>>();
    compare_updates<AdamW, float, Masters<float, bfloat16>, Rounded<ScaledStates<2>>>();
    compare_updates<AdamW, float, Masters<float, bfloat16>, Rounded<ScaledStates<2, power8>>>();
    compare_updates<Adagrad, float, Split, Rounded<ScaledStates<Adagrad::states, power8>>>();
}

TEST_CASE("A device runs every per-element optimizer to the bits of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare_updates<Adam, float, Masters<float, bfloat16>, States<Adam::states, float>>();
    compare_updates<Sgd, float, Masters<float, bfloat16>, States<Sgd::states, float>>();
    compare_updates<Lion, float, Masters<float, bfloat16>, States<Lion::states, float>>();
    compare_updates<Adagrad, float, Masters<float, bfloat16>, States<Adagrad::states, float>>();
}

TEST_CASE("A device runs every optimizer of whole parameters to the bits of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare_updates<Lamb, float, Masters<float, bfloat16>, States<2, float>>();
    compare_updates<Lamb, float, Split, Rounded<States<2, bfloat16>>>();
    compare_updates<EmptyCalls, float, Masters<float, float>, States<2, float>>(
        consecutive_places());
    compare_updates<Muon, float, Masters<float, float>, States<2, float>>(places_of_matrices());
    compare_updates<Muon, bfloat16, Split, Rounded<States<2, bfloat16>>>(places_of_matrices());
    compare_updates<Lamb, bfloat16, Masters<bfloat16, bfloat16>, States<2, bfloat16>>(
        places_of_matrices());
}

TEST_CASE("A skipped step, and one that leaves the group, change nothing on a device", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_steps_without_effect<AdamW>();
    check_steps_without_effect<Lamb>();
    check_steps_without_effect<Muon>();
}

} // namespace zero::test::update_kernels_test
