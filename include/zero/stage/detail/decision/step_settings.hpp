#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../step_report.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @throws InvalidArgument for a number of steps that no training reaches, because it would
/// overflow
[[gnu::cold]] void require_steps(std::uint64_t count, char const* what);

/// @throws InvalidArgument for a mean that no run has
[[gnu::cold]] void require_running_norm(RunningNorm const& running);

/// @brief Records on the host the learning rate factors, and the settings that were changed since
/// construction, so that ranks can compare these by a hash in every step. `StepControl` owns it.
class StepSettings {
public:
    /// @param listed_groups entries of `options.groups`; if 0, the parameters decide how many
    ///     groups there are
    [[gnu::cold]] StepSettings(FlatLayout const& layout, std::size_t listed_groups);

    [[nodiscard]] std::size_t group_count() const noexcept { return _group_count; }

    /// @brief Sets the number of the engine, so that ranks notice a step of another engine of the
    /// same communicator. @see FlatLayout::number
    /// @param over_model the same for the ranks that share a copy of a model; 0: there are none
    void set_engine(std::uint64_t number, std::uint64_t over_model) noexcept {
        _number = _updates = number;
        _number_over_model = over_model;
    }

    /// @brief Lets messages name the engine, also if nothing was changed.
    void name_engine() {
        _is_named = true;
        set_context();
    }

    /// @brief Notes that a step was cancelled.
    void note_cancelled() { note(Change::cancelled_steps); }

    /// @brief Sets a factor at construction, where ranks compare it as an option.
    void set_initial_factor(std::size_t group, double factor) noexcept { _factors[group] = factor; }

    void set_learning_rate_factor(std::size_t group, double factor);
    void set_hyper_parameters(std::size_t group, std::uint64_t options_hash);
    /// @param state a hash of the trackers that were set
    void set_loss_scaler(std::uint64_t state);
    void set_step_count(std::uint64_t count);
    void set_running_norm(RunningNorm const& running);
    /// @brief Sets each parameter's number of updates, after `set_step_count`.
    void set_updates(std::span<std::uint64_t const> updates);
    [[nodiscard]] double learning_rate_factor(std::size_t group) const noexcept {
        return _factors[group];
    }

    /// @throws InvalidArgument if the learning rate times the factor of a group is infinite as a
    /// float
    void require_finite_rates(double learning_rate, int rank) const;

    /// @brief Returns a hash of the settings and of the other values that must be equal on all
    /// ranks.
    /// @param begun steps so far, cancelled ones included
    [[nodiscard]] std::uint64_t hash(std::uint64_t begun, double learning_rate) const noexcept;

    /// @brief The same for the ranks that share a copy of a model: without what belongs to single
    /// parameters, and with the weight of their data.
    [[nodiscard]] std::uint64_t hash_over_model(std::uint64_t begun, double learning_rate,
                                                std::optional<std::int64_t> weight) const noexcept;

    /// @brief Returns which settings the hash may differ in, for messages: "engine 2 ('weight')
    /// with changed loss scaler"; "" if nothing was changed since construction.
    [[nodiscard]] char const* context() const noexcept { return _context.c_str(); }

private:
    /// What a caller changes, in the order of the names in `set_context`.
    enum class Change : std::uint8_t {
        learning_rates,
        hyper_parameters,
        loss_scaler,
        step_count,
        running_norm,
        updates,
        cancelled_steps
    };

    /// Adds it to the context if it is the first of its kind.
    void note(Change change) {
        std::uint32_t const all = _changes | 1U << static_cast<unsigned>(change);
        if (all != _changes) {
            _changes = all;
            set_context();
        }
    }
    [[gnu::cold]] void set_context();

    [[noreturn, gnu::cold]] static void throw_infinite_rate(double learning_rate, double factor,
                                                            std::size_t group, int rank);

    std::size_t _group_count;
    std::vector<double> _factors;         ///< learning rate factors by group
    std::vector<std::uint64_t> _settings; ///< two for each group, the loss scale and the step
                                          ///< count, and the running norm once it was set; 0:
                                          ///< unchanged
    std::uint64_t _updates = 0;           ///< the same of the updates of each parameter, and the
                                          ///< number of the engine
    std::uint64_t _number = 0;            ///< of the engine
    std::uint64_t _number_over_model = 0;
    std::string _first;         ///< its first parameter
    std::uint32_t _changes = 0; ///< a bit for each `Change`
    bool _is_named = false;     ///< also if nothing was changed
    std::string _context;       ///< for messages
};

/// @brief The learning rate of a step as the text of a collective's tag, so that ranks that
/// disagree read both rates. `StepControl` owns it; it allocates nothing.
class RateText {
public:
    /// @param between which ranks agree, for the text: "model ranks: "
    explicit RateText(char const* between = "") noexcept : _between(between) {}

    /// @brief Returns "rate 0.01 after 4 micro-steps, steps and settings as hash". Valid until the
    /// next call.
    /// @param micro_steps 0: ranks may differ in them, so they are left out
    [[nodiscard]] char const* of(double learning_rate, std::size_t micro_steps) noexcept;

    /// @brief Says what kind of step follows: "JointStep, engine 0 of 2: "; "" for the usual one.
    void set_kind(std::string kind) noexcept {
        _kind = std::move(kind);
        _rate = -1.0;
    }

    [[nodiscard]] std::string const& kind() const noexcept { return _kind; }

private:
    char const* _between;
    std::string _kind;
    double _rate = -1.0; ///< the rate in `_text`; initially -1, because no rate is negative
    std::size_t _micro_steps = 0;
    std::array<char, 128> _text{};
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "step_settings.ipp"
#endif
