#pragma once

/// @file
/// @brief Shows the averages of `Averaged<O>` in place of the weights, for an evaluation or an
/// export.

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../layout/flat_layout.hpp"
#include "detail/common/engine_config.hpp"
#include "detail/engine/protocol.hpp"
#include "detail/state/state_access.hpp"
#include "detail/state/state_table.hpp"
#include "detail/state/state_transfer.hpp"
#include "engine.hpp"

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Answers for an engine that shows averages: everything can be read, and nothing changed.
class ShownAverages final : public ParkedStates {
public:
    explicit ShownAverages(Protocol const& protocol) noexcept : _protocol(&protocol) {}

    void require_here(char const* call, StateUse use) override {
        if (use == StateUse::change) {
            throw_error<OutOfOrder>({"zero: ", call, " while the parameters are averages (",
                                     _protocol->rank_text(),
                                     "); end the zero::AveragedWeights on every rank first."});
        }
    }

    [[nodiscard]] bool is_offloaded() const noexcept override { return false; }

    std::unique_ptr<ParkedStates> before{}; ///< what was kept in its place

private:
    Protocol const* _protocol;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Shows averages in place of the weights as long as it lives, and then the weights again,
/// with the same bits.
///
///     { // the optimizer of the stage is zero::Averaged<zero::AdamW>
///         zero::AveragedWeights const averaged(engine); // on every rank, between two steps
///         evaluate(engine);
///         zero::save_parameters(engine, "averaged.safetensors");
///     }
///
/// Meanwhile parameters can be read (`acquire`, `for_each_full_parameter`, `gather_to`, `gather`,
/// `TrainingState::full_...` and `local_...`) and exported; everything else between two steps, and
/// a step, throws `OutOfOrder`. A parameter that was never updated, and a frozen one, keeps its
/// weights. 16-bit parameters show the average rounded to their type; an export in float32 has it
/// as the master weights would hold it.
///
/// Construction is collective and waits. `end` and the destructor wait and send nothing, so an
/// exception may end the scope on one rank. If the destructor fails, for instance because a handle
/// is held, the engine breaks with the message of `end`. This rank's weights are back in any case.
/// Memory: the weights and parameters of this rank once more, on the host, not in the memory plan.
/// @tparam Config that of the engine, which must outlive this object
template <class Config>
class AveragedWeights {
    using Optimizer = typename Config::Optimizer;
    static_assert(
        requires {
            typename Optimizer::Base;
            Optimizer::average;
        }, "zero::AveragedWeights: the stage keeps no average; name "
           "zero::Averaged<zero::AdamW> among its policies.");
    static_assert(
        !requires { typename Optimizer::Base; }
            || std::is_same_v<typename Config::OptimizerState::Type, float>,
        "zero::AveragedWeights: an average moves by less than 16 bits can hold; leave "
        "zero::OptimizerState and zero::BlockScaledState out of the stage.");

public:
    /// @throws OutOfOrder inside a step, or while a handle is held; CommunicatorError
    [[nodiscard]] explicit AveragedWeights(Engine<Config>& engine) : _access(engine) {
        _access.wait_to_write(call);
        _access.publish_master_weights(call); // what a visitor has written
        std::unique_ptr<detail::ShownAverages> shown;
        _access.guard([&] {
            shown = std::make_unique<detail::ShownAverages>(_access.protocol());
            _transfer.emplace(_access);
            keep();
        });
        try {
            _access.guard([&] { show(); });
            _access.publish_master_weights(call);
        } catch (...) {
            restore(); // the states of the broken engine can be read
            throw;
        }
        detail::Protocol& protocol = _access.parking();
        shown->before = protocol.unpark();
        protocol.park(std::move(shown));
        protocol.set_away(true, false);
        _is_shown = true;
    }
    AveragedWeights(AveragedWeights const&) = delete;
    AveragedWeights& operator=(AveragedWeights const&) = delete;

    ~AveragedWeights() {
        try {
            end();
        } catch (std::exception const& error) {
            break_down(error.what());
        } catch (...) {
            break_down("zero::AveragedWeights could not show the weights again");
        }
    }

    /// @brief Shows the weights again. Call it on every rank; waits. Calls after the first do
    /// nothing. @throws OutOfOrder while a handle is held: nothing was changed; CommunicatorError
    void end() {
        if (!_is_shown) {
            return;
        }
        _access.protocol().require_nothing_held("the end of zero::AveragedWeights");
        hide();
        if (_access.protocol().is_broken()) {
            restore();
            return;
        }
        try {
            _access.wait_to_write(call);
        } catch (...) {
            restore();
            throw;
        }
        restore();
        _access.publish_local();
    }

private:
    static constexpr char const* call = "zero::AveragedWeights";

    /// Calls `use(slice, begin of the kept bytes, bytes)` for the weights of this rank, in every
    /// form. @return the bytes of all
    template <class Use>
    std::size_t for_each_weight(Use const& use) const {
        using detail::ArrayKind;
        std::size_t at = 0;
        for (detail::HeldArray const& array : _transfer->arrays()) {
            ArrayKind const kind = array.form.kind;
            if (kind == ArrayKind::state || kind == ArrayKind::state_scale) {
                continue;
            }
            for (detail::HeldSlice const& slice : array.slices) {
                if (_access.layout().parameter(slice.parameter).trainable) {
                    std::size_t const bytes = array.bytes(slice.elements);
                    use(slice, at, bytes);
                    at += bytes;
                }
            }
        }
        return at;
    }

    void keep() {
        _access.wait_to_read();
        _kept.resize(for_each_weight([](auto const&, std::size_t, std::size_t) {}));
        _access.locally([&] {
            for_each_weight([&](detail::HeldSlice const& slice, std::size_t at, std::size_t bytes) {
                _access.copy(_kept.data() + at, slice.data, bytes);
            });
        });
    }

    void show() {
        auto const updates = _access.updates();
        for (std::size_t parameter = 0; parameter < updates.size(); ++parameter) {
            if (!_access.layout().parameter(parameter).trainable || updates[parameter] == 0) {
                continue;
            }
            for (auto const& slice :
                 _transfer->local(detail::ArrayKind::state, Optimizer::average, parameter)) {
                _transfer->set_local(detail::ArrayKind::parameter, 0, parameter, slice.begin,
                                     detail::as_span(slice.values));
            }
        }
    }

    /// Writes the weights of this rank. Allowed in a broken engine.
    void restore() const noexcept {
        try {
            _access.wait_to_read();
            _access.locally([&] {
                for_each_weight(
                    [&](detail::HeldSlice const& slice, std::size_t at, std::size_t bytes) {
                        _access.copy(slice.data, _kept.data() + at, bytes);
                    });
            });
        } catch (...) { // of a tier that failed: the engine is broken
            _access.break_down("zero::AveragedWeights could not write the weights");
        }
    }

    void hide() noexcept {
        detail::Protocol& protocol = _access.parking();
        auto const shown = protocol.unpark();
        protocol.set_away(false, false);
        protocol.park(std::move(static_cast<detail::ShownAverages&>(*shown).before));
        _is_shown = false;
    }

    void break_down(char const* cause) noexcept {
        if (_is_shown) {
            hide();
        }
        restore();
        _access.break_down(cause);
    }

    detail::StateAccess<Config> _access;
    std::optional<detail::StateTransfer<Config>> _transfer{};
    std::vector<std::byte> _kept{}; ///< the weights
    bool _is_shown = false;
};

} // namespace ZERO_NAMESPACE
