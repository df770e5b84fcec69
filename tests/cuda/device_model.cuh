#pragma once

#include "cuda/device.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include <zero/cuda/backend.cuh>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace zero::test {

/// Adds to a gradient what `run_micro_step` of the toy model adds on the host, bit for bit.
template <class G>
__global__ void add_toy_gradient(G* gradient, std::size_t elements, std::uint64_t who,
                                 std::uint64_t parameter, std::uint64_t when, float const* scale,
                                 std::size_t binades) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < elements;
         i += std::size_t{gridDim.x} * blockDim.x) {
        float const smaller = 1.0F / static_cast<float>(std::uint64_t{1} << i * 7 % (binades + 1));
        float const added = ops::mul(ops::mul(smaller, *scale), noise(who, parameter, i, when));
        gradient[i] = from_float<G>(ops::add(to_float(gradient[i]), added));
    }
}

struct NothingElse {
    void operator()(auto) const {}
};

/// Does the same as `run_micro_step`, with a model that runs on a stream.
/// @param also is called with each gradient before its unit is ready
template <class Engine, class Also = NothingElse>
void run_device_micro_step(Engine& engine, cudaStream_t stream, std::uint64_t rank,
                           std::uint64_t step, std::uint64_t micro_step, std::size_t binades,
                           Also const& also = {}) {
    auto const& layout = engine.layout();
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        auto const weights = engine.acquire(unit);
    }
    for (std::size_t unit = layout.units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : layout.unit_parameters(unit)) {
            auto const gradient = gradients[parameter];
            if (!gradient.empty()) {
                cuda::detail::launch(
                    stream, 4, 128,
                    add_toy_gradient<std::remove_reference_t<decltype(gradient[0])>>,
                    gradient.data(), gradient.size(), 2 + rank * 100 + unit, parameter,
                    step * 16 + micro_step, engine.loss_scale().data(), binades);
                also(gradient);
            }
        }
        engine.gradients_ready(unit);
    }
}

template <class Engine>
auto run_device_step(Engine& engine, cudaStream_t stream, std::uint64_t rank, std::uint64_t step,
                     std::size_t micro_steps, double learning_rate, std::size_t binades) {
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(micro_steps)) {
        run_device_micro_step(engine, stream, rank, step, micro_step, binades);
    }
    return engine.step(learning_rate);
}

/// Copies the slice that its owner sees to the host.
template <class Owned>
struct HostCopy {
    explicit HostCopy(Owned const& device) : slice(device) {
        copy(slice.values, values);
        copy(slice.master, master);
        copy(slice.remainder, remainder);
        copy(slice.rounded_up, rounded_up);
        for (std::size_t state = 0; state < slice.states.size(); ++state) {
            copy(slice.states[state], states[state]);
            copy(slice.scales[state], scales[state]);
        }
    }

    Owned slice;

private:
    template <class T>
    static void copy(std::span<T>& of, std::vector<T>& to) {
        to = on_host(of);
        of = to;
    }
    template <class Span>
    using VectorOf = std::vector<typename Span::element_type>;

    VectorOf<decltype(Owned::values)> values;
    VectorOf<decltype(Owned::master)> master;
    std::vector<std::uint16_t> remainder;
    std::vector<std::uint8_t> rounded_up;
    std::array<VectorOf<typename decltype(Owned::states)::value_type>,
               std::tuple_size_v<decltype(Owned::states)>>
        states;
    std::array<std::vector<float>, std::tuple_size_v<decltype(Owned::states)>> scales;
};

/// The part of a run that one rank owns and sees; the rest of `Trained` stays zero.
template <class Engine>
void collect(Engine& engine, std::vector<ParameterSpec> const& specs, Trained& result) {
    engine.settle();
    engine.for_each_full_parameter([&](std::size_t, auto parameter) {
        result.parameters.emplace_back();
        for (auto const value : on_host(parameter)) {
            result.parameters.back().push_back(to_float(value));
        }
    });
    result.masters.resize(specs.size());
    result.states.resize(specs.size());
    for (std::size_t index = 0; index < specs.size(); ++index) {
        result.masters[index].resize(specs[index].elements);
        result.states[index].resize(2 * specs[index].elements);
    }
    engine.for_each_owned_slice([&](auto const& device) {
        HostCopy const copy(device);
        auto const& slice = copy.slice;
        for (std::size_t i = 0; i < slice.values.size(); ++i) {
            result.masters[slice.parameter][slice.begin + i] = slice.master_weight(i);
            for (std::size_t state = 0; state < slice.states.size(); ++state) {
                result.states[slice.parameter][2 * (slice.begin + i) + state] =
                    slice.state(state, i);
            }
        }
    });
    result.plan = engine.memory_plan();
}

/// Merges like `merge` in `trained`: elements that a rank does not own are zero.
inline Trained merged(std::vector<Trained> const& ranks) {
    Trained all = ranks[0];
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
        for (std::size_t index = 0; index < all.masters.size(); ++index) {
            for (std::size_t i = 0; i < all.masters[index].size(); ++i) {
                all.masters[index][i] = all.masters[index][i] == 0.0F
                                            ? ranks[rank].masters[index][i]
                                            : all.masters[index][i];
            }
            for (std::size_t i = 0; i < all.states[index].size(); ++i) {
                all.states[index][i] = all.states[index][i] == 0.0F ? ranks[rank].states[index][i]
                                                                    : all.states[index][i];
            }
        }
    }
    return all;
}

/// Counts the bytes of each kind that an engine allocates.
class CountingMemory final : public MemoryResource {
public:
    void* allocate(std::size_t bytes, BufferKind kind) override {
        _bytes[static_cast<std::size_t>(kind)] += bytes;
        return cuda::default_memory().allocate(bytes, kind);
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        _bytes[static_cast<std::size_t>(kind)] -= bytes;
        cuda::default_memory().deallocate(memory, bytes, kind);
    }
    [[nodiscard]] std::size_t bytes(BufferKind kind) const {
        return _bytes[static_cast<std::size_t>(kind)];
    }

private:
    std::array<std::size_t, buffer_kinds> _bytes{};
};

/// Caller-owned parameters in one block of device memory, and memory for their gradients with a gap
/// after each, so that they are not a gradient block.
template <class T, class G>
struct DeviceParameters {
    explicit DeviceParameters(std::vector<Parameter<T, G>>& parameters)
        : memory(make(parameters)), gradients(memory.size() + parameters.size()) {
        std::size_t begin = 0;
        std::size_t gaps = 0;
        for (auto& parameter : parameters) {
            parameter.data = memory.data() + begin;
            parameter.gradient = parameter.trainable ? gradients.data() + begin + gaps : nullptr;
            parameter.initialise = nullptr;
            begin += parameter.elements;
            ++gaps;
        }
    }

    DeviceArray<T> memory;
    DeviceArray<G> gradients;

private:
    static std::vector<T> make(std::vector<Parameter<T, G>> const& parameters) {
        std::vector<T> values;
        for (auto const& parameter : parameters) {
            values.resize(values.size() + parameter.elements);
            parameter.initialise(0, std::span<T>(values).last(parameter.elements));
        }
        return values;
    }
};

/// Does the same as `trained`, on a device.
template <class Stage>
Trained trained_on_device(int world, typename Stage::Options const& options = {},
                          std::uint64_t steps = 4, double learning_rate = 0.01,
                          std::size_t binades = 24,
                          std::vector<ParameterSpec> const& specs = toy_specs()) {
    using T = typename Stage::ParameterType;
    auto const ranks =
        on_ranks<Trained, typename Stage::Communicator>(world, [&](auto& communicator) {
            auto parameters = registration<T, typename Stage::GradientType>(specs);
            auto own_options = options;
            cuda::OwnedStream const stream;
            own_options.compute_queue = stream.get();
            own_options.reduction.schedule = options.reduction.schedule.value_or(
                ReductionSchedule::boundary);    // the default differs between stages
            for (auto& parameter : parameters) { // computed by the owners, or by rank 0
                parameter.is_deterministic = options.storage == Storage::owned && world % 2 == 1;
            }
            std::optional<DeviceParameters<T, typename Stage::GradientType>> memory;
            if (options.storage != Storage::owned) {
                memory.emplace(parameters);
                own_options.adopted_block =
                    options.storage == Storage::adopted
                        ? std::span<T>(memory->memory.data(), memory->memory.size())
                        : std::span<T>();
            }
            Stage engine(communicator, parameters, own_options);
            for (std::uint64_t step = 0; step < steps; ++step) {
                (void)run_device_step(engine, stream.get(),
                                      static_cast<std::uint64_t>(communicator.rank()), step, 2,
                                      learning_rate, binades);
            }
            Trained result;
            collect(engine, specs, result);
            return result;
        });
    return merged(ranks);
}

} // namespace zero::test
