#pragma once

#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/host_device.hpp"
#include "../common/drain.hpp"
#include "../common/step_state.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

/// The decision of a step for each parameter, as commands, which a device runs as well.
/// `UpdateCounts` enqueues them.
namespace ZERO_NAMESPACE::detail {

/// @brief The number of updates of one parameter, in backend memory, and its group.
struct UpdateCount {
    std::uint64_t missed = 0; ///< steps minus updates, modulo 2^64
    std::uint64_t group = 0;  ///< index of the parameter group
};

/// @brief Writes the minima of some parameters, as `ReportedFigures` describes them. The bits
/// travel in the command, so that a graph keeps them.
struct NoteUnused {
    static constexpr std::size_t words = 11;
    static constexpr std::size_t capacity = 64 * words; ///< parameters of one command

    std::int64_t* to;
    std::size_t count;         ///< parameters of this command
    std::uint64_t used[words]; ///< one bit for each: had a gradient on this rank
    ZERO_HOST_DEVICE void operator()() const { write(std::make_index_sequence<words>()); }

private:
    /// Constant indices: a kernel would copy an array that it indexes otherwise to local memory.
    template <std::size_t... Words>
    ZERO_HOST_DEVICE void write(std::index_sequence<Words...> /*unused*/) const {
        (write_word(used[Words], 64 * Words), ...);
    }

    ZERO_HOST_DEVICE void write_word(std::uint64_t bits, std::size_t begin) const {
        for (std::size_t i = begin; i < count && i < begin + 64; ++i) {
            to[i] = (bits >> (i - begin) & 1U) != 0 ? 0 : 1;
        }
    }
};

/// @brief The decision of a step for each parameter, after `DecideStep`: which ones are left as
/// they are, and the hyper-parameters of the others by their own number of updates.
template <class Config>
struct DecideParameters {
    using Optimizer = typename Config::Optimizer;

    StepState<Config> const* state;
    GroupState<Optimizer> const* groups;
    GroupState<Optimizer>* rows; ///< one for each parameter
    UpdateCount* counts;
    std::int64_t const* unused; ///< reduced minima of `NoteUnused`; null: no parameter is left
    std::size_t parameters;
    double learning_rate;

    ZERO_HOST_DEVICE void operator()() const {
        for (std::size_t parameter = 0; !state->decision.skip && parameter < parameters;
             ++parameter) {
            UpdateCount& count = counts[parameter];
            GroupState<Optimizer> const& group = groups[count.group];
            GroupState<Optimizer>& row = rows[parameter];
            row.factor = group.factor;
            row.is_left = unused != nullptr && unused[parameter] != 0;
            if (row.is_left) {
                ++count.missed;
            } else if (count.missed == 0) {
                row.hyper = group.hyper;
            } else {
                row.hyper = Optimizer::hyper(group.options,
                                             ops::mul(learning_rate, group.learning_rate_factor),
                                             state->step_count - count.missed);
            }
        }
    }
};

/// @brief Sets the updates of every parameter to the number of steps.
struct ClearMissed {
    UpdateCount* counts;
    std::size_t parameters;
    ZERO_HOST_DEVICE void operator()() const {
        for (std::size_t parameter = 0; parameter < parameters; ++parameter) {
            counts[parameter].missed = 0;
        }
    }
};

/// @brief Owns each parameter's number of updates and its row of hyper-parameters, in backend
/// memory, as soon as the numbers may differ: `UnusedParameters::leave`, or states that were loaded
/// for some parameters only. Until then it allocates and enqueues nothing. `StepControl` owns it.
template <class Config>
class UpdateCounts {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Group = GroupState<typename Config::Optimizer>;

    /// @param keeps_all whether numbers are kept from the beginning
    [[gnu::cold]] UpdateCounts(FlatLayout const& layout, Queue queue, MemoryResource& memory,
                               bool keeps_all)
        : _layout(&layout), _queue(queue), _drain(queue) {
        if (keeps_all) {
            std::vector<std::uint64_t> const none(layout.parameters().size(), 0);
            set(memory, as_span(none), 0);
        }
    }

    /// @brief Returns whether numbers are kept for each parameter.
    [[nodiscard]] bool is_any() const noexcept { return _counts.size() != 0; }
    [[nodiscard]] std::size_t size() const noexcept { return _counts.size(); }

    /// @brief Returns the rows that slices name: the groups, or the parameters if numbers are kept.
    [[nodiscard]] Group const* rows(Group const* groups) const noexcept {
        return is_any() ? _rows.data() : groups;
    }
    [[nodiscard]] std::size_t size_bytes() const noexcept {
        return _rows.size_bytes() + _counts.size_bytes();
    }

    /// @brief Enqueues this rank's minima of the parameters. @param used as
    /// `GradientDeliveries::noted`
    /// @return `to`, or null if `used` is empty
    std::int64_t* note_unused(std::vector<char> const& used, std::int64_t* to) const {
        for (std::size_t begin = 0; begin < used.size(); begin += NoteUnused::capacity) {
            NoteUnused note{to + begin, smaller(NoteUnused::capacity, used.size() - begin), {}};
            for (std::size_t i = 0; i < note.count; ++i) {
                note.used[i / 64] |= std::uint64_t{used[begin + i] != 0} << (i % 64);
            }
            Backend::run(_queue, note);
        }
        return used.empty() ? nullptr : to;
    }

    /// @brief Enqueues the decision for each parameter. @param unused the reduced minima, or null
    void decide(StepState<Config> const* state, Group const* groups, std::int64_t const* unused,
                double learning_rate) {
        if (is_any()) {
            Backend::run(_queue,
                         DecideParameters<Config>{state, groups, _rows.data(), _counts.data(),
                                                  unused, _counts.size(), learning_rate});
        }
    }

    /// @brief Sets the updates of every parameter to the number of steps.
    void clear() {
        if (is_any()) {
            Backend::run(_queue, ClearMissed{_counts.data(), _counts.size()});
        }
    }

    /// @brief Returns each parameter's number of updates after `steps` steps. Waits.
    [[nodiscard]] std::vector<std::uint64_t> updates(std::uint64_t steps) const {
        std::vector<std::uint64_t> updates(_layout->parameters().size(), steps);
        auto const counts = to_host(_counts);
        for (std::size_t parameter = 0; parameter < counts.size(); ++parameter) {
            updates[parameter] -= counts[parameter].missed;
        }
        return updates;
    }

    /// @brief Returns the number that each parameter's update has in the step that was decided, the
    /// last of `steps`; 0 if it is left as it is. Empty if no numbers are kept. Waits.
    [[nodiscard]] std::vector<std::uint64_t> numbers(std::uint64_t steps) const {
        if (!is_any()) {
            return {};
        }
        std::vector<std::uint64_t> numbers = updates(steps);
        auto const rows = to_host(_rows);
        for (std::size_t parameter = 0; parameter < numbers.size(); ++parameter) {
            numbers[parameter] = rows[parameter].is_left ? 0 : numbers[parameter];
        }
        return numbers;
    }

    /// @brief Sets each parameter's number of updates after `steps` steps. Keeps the numbers from
    /// now on, unless all are `steps`. Waits.
    /// @return whether slices must name parameters from now on
    [[gnu::cold]] bool set_unequal(MemoryResource& memory, std::span<std::uint64_t const> updates,
                                   std::uint64_t steps) {
        bool const is_first = !is_any();
        bool is_equal = true;
        for (std::uint64_t const count : updates) {
            is_equal = is_equal && count == steps;
        }
        if (!is_equal || !is_first) {
            set(memory, updates, steps);
        }
        return !is_equal && is_first;
    }

private:
    void set(MemoryResource& memory, std::span<std::uint64_t const> updates, std::uint64_t steps) {
        std::size_t const parameters = updates.size();
        if (!is_any()) {
            Buffer<Group> rows(memory, parameters, BufferKind::control);
            _counts = Buffer<UpdateCount>(memory, parameters, BufferKind::control);
            _rows = std::move(rows);
        }
        List<UpdateCount> counts(parameters);
        Drain<Backend> const drain(_queue); // a command uses it
        for (std::size_t parameter = 0; parameter < parameters; ++parameter) {
            counts[parameter] = {steps - updates[parameter], _layout->parameter(parameter).group};
        }
        Backend::copy_bytes(_queue, _counts.data(), counts.data(), _counts.size_bytes());
        Backend::synchronise(Backend::record(_queue));
    }

    /// Returns the values of a buffer after everything that was enqueued. Waits.
    template <class T>
    [[nodiscard]] List<T> to_host(Buffer<T> const& buffer) const {
        List<T> values(buffer.size());
        if (!values.empty()) {
            Drain<Backend> const drain(_queue);            // a command uses it
            Backend::synchronise(Backend::record(_queue)); // as in `through_backend`
            Backend::copy_bytes(_queue, values.data(), buffer.data(), buffer.size_bytes());
            Backend::synchronise(Backend::record(_queue));
        }
        return values;
    }

    FlatLayout const* _layout;
    Queue _queue;
    Buffer<Group> _rows;         ///< empty, or one for each parameter
    Buffer<UpdateCount> _counts; ///< the same
    Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE::detail
