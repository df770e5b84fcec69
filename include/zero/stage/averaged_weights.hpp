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
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief What an engine answers while it shows averages: parameters can be read, and weights
/// exported.
class ShownAverages final : public ParkedStates {
public:
    /// @param kept what was kept there before
    ShownAverages(Protocol const& protocol, std::unique_ptr<ParkedStates> kept) noexcept
        : before(std::move(kept)), _protocol(&protocol) {}

    void require_here(char const* call, bool is_reader) override {
        bool allowed = is_reader;
        for (std::string_view const reads :
             {"save_parameters()", "reading a full state", "access to states"}) {
            allowed = allowed || reads == call;
        }
        if (!allowed) {
            throw_error<OutOfOrder>({"zero: ", call, " while the parameters are averages (",
                                     _protocol->rank_text(),
                                     "); end the zero::AveragedWeights on every rank first."});
        }
    }

    [[nodiscard]] bool is_in_files() const noexcept override { return false; }

    std::unique_ptr<ParkedStates> before;

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
/// Meanwhile parameters can be read (`acquire`, `for_each_full_parameter`, `gather_to`,
/// `TrainingState::full_...` and `local_...`) and exported; everything else between two steps, and
/// a step, throws `OutOfOrder`. A parameter that was never updated, and a frozen one, keeps its
/// weights. 16-bit parameters show the average rounded to their type; an export in float32 has it
/// as the master weights would hold it.
///
/// Construction and destruction are collective and wait, also where an exception ends the scope.
/// Memory: the weights of this rank once more, on the host, not in the memory plan. A failure of
/// the destructor breaks the engine.
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

public:
    /// @throws OutOfOrder inside a step, or while a handle is held; CommunicatorError
    explicit AveragedWeights(Engine<Config>& engine) : _access(engine) {
        _access.wait_to_write("zero::AveragedWeights");
        detail::StateTransfer<Config> transfer(_access);
        keep(transfer);
        _access.guard([&] { show(transfer); });
        _access.publish_master_weights();
        detail::Protocol& protocol = _access.parking();
        protocol.park(std::make_unique<detail::ShownAverages>(protocol, protocol.unpark()));
        protocol.set_away(true, false);
    }
    AveragedWeights(AveragedWeights const&) = delete;
    AveragedWeights& operator=(AveragedWeights const&) = delete;

    ~AveragedWeights() {
        detail::Protocol& protocol = _access.parking();
        auto const shown = protocol.unpark();
        protocol.set_away(false, false);
        protocol.park(std::move(static_cast<detail::ShownAverages&>(*shown).before));
        try {
            detail::StateTransfer<Config> const transfer(_access);
            restore(transfer); // also in a broken engine, whose states can be read
            if (!protocol.is_broken()) {
                _access.publish_master_weights();
            }
        } catch (...) {
            _access.break_down("zero::AveragedWeights could not show the weights again");
        }
    }

private:
    using Transfer = detail::StateTransfer<Config>;

    /// Calls `use(array, slice, kept bytes)` for the weights of this rank, in every form.
    template <class Use>
    static void for_each_weight(Transfer const& transfer, FlatLayout const& layout,
                                Use const& use) {
        using detail::ArrayKind;
        std::size_t at = 0;
        for (detail::HeldArray const& array : transfer.arrays()) {
            ArrayKind const kind = array.form.kind;
            if (kind == ArrayKind::state || kind == ArrayKind::state_scale) {
                continue;
            }
            for (detail::HeldSlice const& slice : array.slices) {
                if (layout.parameter(slice.parameter).trainable) {
                    std::size_t const bytes = array.bytes(slice.elements);
                    use(slice, at, bytes);
                    at += bytes;
                }
            }
        }
    }

    void keep(Transfer const& transfer) {
        _access.wait_to_read();
        _access.locally([&] {
            for_each_weight(transfer, _access.layout(),
                            [&](detail::HeldSlice const& slice, std::size_t at, std::size_t bytes) {
                                _kept.resize(at + bytes);
                                _access.copy(_kept.data() + at, slice.data, bytes);
                            });
        });
    }

    void show(Transfer& transfer) const {
        auto const updates = _access.updates();
        for (std::size_t parameter = 0; parameter < updates.size(); ++parameter) {
            if (!_access.layout().parameter(parameter).trainable || updates[parameter] == 0) {
                continue;
            }
            for (auto const& slice :
                 transfer.local(detail::ArrayKind::state, Optimizer::average, parameter)) {
                transfer.set_local(detail::ArrayKind::parameter, 0, parameter, slice.begin,
                                   detail::as_span(slice.values));
            }
        }
    }

    void restore(Transfer const& transfer) const {
        _access.wait_to_read();
        _access.locally([&] {
            for_each_weight(transfer, _access.layout(),
                            [&](detail::HeldSlice const& slice, std::size_t at, std::size_t bytes) {
                                _access.copy(slice.data, _kept.data() + at, bytes);
                            });
        });
    }

    detail::StateAccess<Config> _access;
    std::vector<std::byte> _kept{}; ///< the weights
};

} // namespace ZERO_NAMESPACE
