#pragma once

// The model of one rank: its memory, and the commands of its forward and backward passes. The
// commands run on the compute queue, where they read weights and loss scale and write gradients. A
// wait that the engine forgets therefore changes their results.

#include "failures.hpp"
#include "reference.hpp"

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zero::test::oracle {

inline std::string hex(float value) {
    char text[64];
    std::snprintf(text, sizeof text, "%a (%08x)", static_cast<double>(value),
                  std::bit_cast<std::uint32_t>(value));
    return text;
}

inline bool has_same_bits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// One run in one stage; all ranks share it.
struct Run {
    Configuration const* configuration;
    History const* history;
    int stage;
    Failures* failures;
    double learning_rate_error = 1.0; ///< factor of the learning rate; 1 except in controls
};

/// @tparam Vector container whose memory both the host and the engine's backend can use
template <class T, class G, template <class> class Vector>
class Model {
public:
    Model(Run const& run, std::size_t rank)
        : _run(&run), _rank(rank), _is_written(run.configuration->shapes.size()) {
        Configuration const& c = *run.configuration;
        if (c.memory == Memory::adopted) {
            _block.assign(c.block_elements, gap());
            _gradient_block.assign(c.block_elements, from_float<G>(-77.0F));
        }
        for (std::size_t parameter = 0; parameter < c.shapes.size(); ++parameter) {
            bool const is_float = c.shapes[parameter].is_float;
            std::size_t const elements = is_float ? 0 : c.shapes[parameter].elements;
            std::size_t const floats = is_float ? c.shapes[parameter].elements : 0;
            Vector<T> values(elements);
            for (std::size_t i = 0; i < elements; ++i) {
                values[i] = from_float<T>(initial_value(c, rank, parameter, i));
            }
            if (c.memory == Memory::adopted) {
                std::copy(values.begin(), values.end(),
                          _block.begin()
                              + static_cast<std::ptrdiff_t>(c.shapes[parameter].address));
            }
            _tensors.push_back(std::move(values));
            _gradients.emplace_back(elements,
                                    from_float<G>(std::numeric_limits<float>::quiet_NaN()));
            _floats.emplace_back(floats);
            for (std::size_t i = 0; i < floats; ++i) {
                _floats.back()[i] = initial_value(c, rank, parameter, i);
            }
            _float_gradients.emplace_back(floats, std::numeric_limits<float>::quiet_NaN());
        }
        if (c.memory == Memory::adopted && !c.has_gradient_block) {
            part_gradients();
        }
    }

    [[nodiscard]] Configuration const& configuration() const noexcept {
        return *_run->configuration;
    }
    [[nodiscard]] std::span<T> block() noexcept { return {_block.data(), _block.size()}; }

    /// @tparam V the parameter's type
    template <class V = T>
    [[nodiscard]] V* values(std::size_t parameter) noexcept {
        if constexpr (!std::is_same_v<V, T>) {
            return _floats[parameter].data();
        } else {
            return own_values(parameter);
        }
    }

    [[nodiscard]] T* own_values(std::size_t parameter) noexcept {
        return configuration().memory == Memory::adopted
                   ? _block.data() + configuration().shapes[parameter].address
                   : _tensors[parameter].data();
    }

    /// Caller-owned memory for a gradient: registered with the engine, or handed over to it.
    template <class V = T>
    [[nodiscard]] auto gradient(std::size_t parameter) noexcept {
        if constexpr (!std::is_same_v<V, T>) {
            return std::span<float>(_float_gradients[parameter].data(),
                                    _float_gradients[parameter].size());
        } else {
            G* const own = configuration().has_gradient_block
                               ? _gradient_block.data() + configuration().shapes[parameter].address
                               : _gradients[parameter].data();
            return std::span<G>(own, _gradients[parameter].size());
        }
    }

    /// Overwrites the registered values. An engine that owns its parameters reads them only during
    /// construction.
    void forget_initial_values() {
        for (auto& tensor : _tensors) {
            tensor.assign(tensor.size(), from_float<T>(std::numeric_limits<float>::quiet_NaN()));
        }
        for (auto& tensor : _floats) {
            tensor.assign(tensor.size(), std::numeric_limits<float>::quiet_NaN());
        }
    }

    void start_micro_step() { _is_written.assign(_is_written.size(), false); }

    /// Returns whether this is the first write to a parameter's gradient in the micro-step. Call it
    /// when the command is enqueued.
    [[nodiscard]] bool is_first_write(std::size_t parameter) {
        bool const is_first = !_is_written[parameter];
        _is_written[parameter] = true;
        return is_first;
    }

    /// @name Commands
    /// @{

    template <class V>
    void check_weights(std::size_t step, std::size_t parameter, V const* values,
                       char const* when) const {
        compare(values, _run->history->snapshots[step].parameters[parameter], 0, when, step,
                parameter);
    }

    /// Assigns or adds the contribution of one unit to a parameter's gradient.
    template <class V>
    void backward(std::size_t step, std::size_t micro_step, std::size_t parameter, std::size_t unit,
                  V* out, bool adds, float const* loss_scale) const {
        Configuration const& c = configuration();
        for (std::size_t i = 0; i < c.shapes[parameter].elements; ++i) {
            float const term =
                contribution(c, step, micro_step, _rank, parameter, unit, i, *loss_scale);
            out[i] = from_float<V>(adds ? plus(to_float(out[i]), term) : term);
        }
    }

    template <class V>
    void overwrite(V* gradient, std::size_t elements) const {
        std::fill_n(gradient, elements, from_float<V>(std::numeric_limits<float>::quiet_NaN()));
    }

    void check_scale(std::size_t step, float const* scale) const {
        float const expected = _run->history->snapshots[step].scaler.scale;
        if (!has_same_bits(*scale, expected)) {
            fail("the loss scale read after step " + std::to_string(step) + " is " + hex(*scale)
                 + ", not " + hex(expected));
        }
    }

    /// @}

    template <class V>
    void compare(V const* values, Values const& expected, std::size_t begin, char const* what,
                 std::size_t step, std::size_t parameter,
                 std::size_t count = ~std::size_t{0}) const {
        count = std::min(count, expected.size() - begin);
        for (std::size_t i = 0; i < count; ++i) {
            if (!has_same_bits(to_float(values[i]), expected[begin + i])) {
                fail(std::string(what) + " after " + std::to_string(step) + " steps: parameter "
                     + std::to_string(parameter) + " element " + std::to_string(begin + i) + " is "
                     + hex(to_float(values[i])) + ", not " + hex(expected[begin + i]));
                return;
            }
        }
    }

    void check_gaps() const {
        std::vector<bool> is_gap(_block.size(), true);
        for (auto const& shape : configuration().shapes) {
            std::fill_n(is_gap.begin() + static_cast<std::ptrdiff_t>(shape.address), shape.elements,
                        false);
        }
        for (std::size_t i = 0; i < _block.size(); ++i) {
            if (is_gap[i] && (!(_block[i] == gap()) || to_float(_gradient_block[i]) != -77.0F)) {
                fail("element " + std::to_string(i)
                     + " of the adopted blocks belongs to no parameter, but was changed");
                return;
            }
        }
    }

    void fail(std::string const& text) const {
        _run->failures->add("stage " + std::to_string(_run->stage) + ", rank "
                            + std::to_string(_rank) + ": " + text);
    }

private:
    /// Moves a gradient, if separate ones lie by chance as the parameters do in the adopted block,
    /// which makes them a block on this rank alone.
    void part_gradients() {
        std::vector<std::size_t> sent;
        for (std::size_t index = 0; index < _gradients.size(); ++index) {
            if (configuration().shapes[index].trainable && !_gradients[index].empty()) {
                sent.push_back(index);
            }
        }
        auto const begin = [&](std::size_t index) {
            return reinterpret_cast<std::uintptr_t>(_gradients[index].data())
                   - configuration().shapes[index].address * sizeof(G);
        };
        std::vector<Vector<G>> kept; // no other gradient gets its memory
        while (sent.size() > 1 && begin(sent.front()) == begin(sent.back())) {
            Vector<G> moved(_gradients[sent.back()]);
            kept.push_back(std::exchange(_gradients[sent.back()], std::move(moved)));
        }
    }

    static T gap() { return from_float<T>(-77.0F); }

    Run const* _run;
    std::size_t _rank;
    Vector<T> _block;
    Vector<G> _gradient_block;
    std::vector<Vector<T>> _tensors;
    std::vector<Vector<G>> _gradients;
    std::vector<Vector<float>> _floats; ///< values of the parameters of the second type
    std::vector<Vector<float>> _float_gradients;
    std::vector<bool> _is_written;
};

} // namespace zero::test::oracle
