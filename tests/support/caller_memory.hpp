#pragma once

#include <zero/layout/stage_table.hpp>
#include <zero/stage/parameter.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace zero::test {

/// Caller-owned memory for a registration: one block with the initial values of the parameters, one
/// after the other, and one for their gradients with a gap after each, so that they are not a
/// gradient block, whose steps have one micro-step. Points the registration at both.
template <class T, class G>
struct CallerMemory {
    explicit CallerMemory(std::vector<Parameter<T, G>>& parameters) {
        std::size_t elements = 0;
        for (auto const& parameter : parameters) {
            elements += parameter.elements;
        }
        block.resize(elements);
        gradients.resize(elements + parameters.size());
        std::size_t begin = 0;
        std::size_t gaps = 0;
        for (auto& parameter : parameters) {
            parameter.data = block.data() + begin;
            parameter.gradient = parameter.trainable ? gradients.data() + begin + gaps : nullptr;
            parameter.initialise(0, std::span<T>(parameter.data.get(), parameter.elements));
            parameter.initialise = nullptr;
            begin += parameter.elements;
            ++gaps;
        }
    }

    std::vector<T> block;
    std::vector<G> gradients;
};

/// Provides memory if the options name a caller-owned storage, and tells them the block of an
/// adopted one.
template <class T, class G, class Options>
std::optional<CallerMemory<T, G>> provide_memory(std::vector<Parameter<T, G>>& parameters,
                                                 Options& options) {
    std::optional<CallerMemory<T, G>> memory;
    if (options.storage != Storage::owned) {
        memory.emplace(parameters);
        options.adopted_block =
            options.storage == Storage::adopted ? std::span<T>(memory->block) : std::span<T>();
    }
    return memory;
}

} // namespace zero::test
