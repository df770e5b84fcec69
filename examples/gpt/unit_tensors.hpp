#pragma once

#include "storage.hpp"

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <zero/core/buffer.hpp>

namespace gpt {

/// @brief The weights of one unit in the type of the arithmetic, and memory for their gradients.
///
/// A trainer may hold weights in a two-byte type, or lend memory until the unit is released, so the
/// model copies a unit when it uses it. The bits of its products then do not depend on the address
/// of a weight either. All blocks share one object, since they run one at a time.
template <class Device>
class UnitTensors {
public:
    using Real = typename Device::Real;

    /// @param elements the size of each parameter, in the order of the places used below
    UnitTensors(Device& device, std::vector<std::size_t> elements)
        : _device(&device), _elements(std::move(elements)) {
        constexpr std::size_t granule = Device::Buffer::alignment / sizeof(Real);
        std::size_t total = 0;
        for (std::size_t const count : _elements) {
            _offsets.push_back(total);
            total += (count + granule - 1) / granule * granule;
        }
        _weights = device.buffer(total);
        _gradients = device.buffer(total);
    }

    Real const* weight(std::size_t place) const noexcept {
        return _weights.data() + _offsets[place];
    }
    Real* gradient(std::size_t place) noexcept { return _gradients.data() + _offsets[place]; }

    /// @brief Copies the weights in; `parameters[place]` is the index of the parameter in
    /// `weights`.
    /// @throws std::invalid_argument if a span does not have the size of its parameter.
    template <class Weights>
    void load_all(Weights&& weights, std::span<std::size_t const> parameters) {
        for (std::size_t place = 0; place < _elements.size(); ++place) {
            auto const values = const_span_of(weights, parameters[place]);
            check(values.size(), place, parameters[place]);
            _device->load(values, _weights.data() + _offsets[place]);
        }
    }

    /// @brief Adds the gradients to those of the trainer.
    /// @throws std::invalid_argument if a span does not have the size of its parameter.
    template <class Gradients>
    void add_all(Gradients&& gradients, std::span<std::size_t const> parameters) const {
        for (std::size_t place = 0; place < _elements.size(); ++place) {
            auto const values = span_of(gradients, parameters[place]);
            check(values.size(), place, parameters[place]);
            _device->add_to(values, _gradients.data() + _offsets[place]);
        }
    }

private:
    void check(std::size_t size, std::size_t place, std::size_t parameter) const {
        if (size != _elements[place]) {
            throw std::invalid_argument("gpt: parameter " + std::to_string(parameter) + " has "
                                        + std::to_string(_elements[place])
                                        + " elements, but the memory handed over has "
                                        + std::to_string(size));
        }
    }

    Device* _device;
    std::vector<std::size_t> _elements;
    std::vector<std::size_t> _offsets;
    typename Device::Buffer _weights;
    typename Device::Buffer _gradients;
};

} // namespace gpt
