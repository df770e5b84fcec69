#pragma once

/// @file
/// @brief One decision for the steps of several engines: one norm, one clip coefficient, one skip.

#include "../backend/fence.hpp"
#include "../core/buffer.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/hash.hpp"
#include "../core/host_device.hpp"
#include "../core/memory_resource.hpp"
#include "../ops/exact_sum.hpp"
#include "../policy/has_compared_options.hpp"
#include "detail/common/drain.hpp"
#include "detail/common/step_state.hpp"
#include "detail/decision/decide_step.hpp"
#include "detail/registration/compared_options.hpp"
#include "engine.hpp"
#include "step_report.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief What one engine contributes to a joint decision, reduced over its ranks; then the sum of
/// all engines.
struct JointFigures {
    ops::Inspection all{};        ///< its index carries the `GradientEvidence` alone
    ops::Inspection clipped{};    ///< of the groups that are clipped
    bool has_stopped = false;     ///< ranks disagree on the order of units
    bool has_silent_part = false; ///< a part of a model has no gradient
    std::uint64_t serial = 0;     ///< number of the step; of the sum: 0 if engines differ, because
                                  ///< the queue of one failed and runs no command
};

/// @brief Notes the figures of one engine.
template <class Step>
struct NoteJoint {
    StepState<Step>* state;
    GroupState<typename Step::Optimizer> const* groups;
    ReportedFigures figures;
    bool compares_order;
    std::uint64_t serial;
    JointFigures* to;
    ZERO_HOST_DEVICE void operator()() const {
        constexpr auto delivered = static_cast<std::int64_t>(GradientEvidence::delivered);
        if (figures.exchanged != nullptr) {
            UnpackFigures{figures}(state->integers);
        }
        JointFigures own;
        own.serial = serial;
        own.all = state->integers.inspection;
        if (own.all.first_non_finite < delivered) {
            own.all.first_non_finite = delivered;
        }
        own.clipped = figures.leaves_out ? clipped_of(figures, groups) : own.all;
        own.has_stopped = compares_order && !state->integers.agreement.is_same();
        if constexpr (Step::is_cut) {
            own.has_stopped = own.has_stopped || state->model.has_stopped;
            own.has_silent_part = state->model.has_silent_part;
        }
        *to = own;
    }
};

/// @brief Adds the figures of all engines.
struct AddJoint {
    JointFigures const* figures;
    std::size_t engines;
    JointFigures* total;
    ZERO_HOST_DEVICE void operator()() const {
        JointFigures sum = figures[0];
        for (std::size_t engine = 1; engine < engines; ++engine) {
            sum.all.merge(figures[engine].all);
            sum.clipped.merge(figures[engine].clipped);
            sum.has_stopped = sum.has_stopped || figures[engine].has_stopped;
            sum.has_silent_part = sum.has_silent_part || figures[engine].has_silent_part;
            sum.serial = sum.serial == figures[engine].serial ? sum.serial : 0;
        }
        *total = sum;
    }
};

/// @brief What `DecideStep` decides on in place of the integers of one engine.
struct JointDecision {
    JointFigures const* total;

    [[nodiscard]] ZERO_HOST_DEVICE ops::Inspection const&
    inspection(ops::Inspection const& /*own*/) const noexcept {
        return total->all;
    }
};

inline constexpr char const* ranks_remedy =
    "give engines of the same ranks; experts need zero::Groups<C, zero::Experts>, whose data ranks "
    "are those of the dense part";

/// @brief Calls `check`, and says in what it throws which of the engines it concerns.
template <class Check>
void check_engine(std::size_t number, Check const& check) {
    auto const add_number = [&](std::exception const& error) {
        return text({error.what(), " It is engine ", number, " of the JointStep."});
    };
    try {
        check();
    } catch (OutOfOrder const& error) {
        throw_error<OutOfOrder>({add_number(error)});
    } catch (InvalidArgument const& error) {
        throw_error<InvalidArgument>({add_number(error)});
    }
}

/// @brief Requires that the values of two engines are equal. Values of one list alone, such as
/// options of a policy that the other has not, are not compared.
/// @param names the values that a decision depends on, @param number that of the other engine
/// @throws InvalidArgument naming the value
[[gnu::cold]] inline void require_joint(std::span<std::string_view const> names,
                                        List<ComparedOption> const& first,
                                        List<ComparedOption> const& other, std::size_t number,
                                        char const* remedy, int rank) {
    for (ComparedOption const& own : first) {
        bool is_compared = names.empty();
        for (std::string_view const name : names) {
            is_compared = is_compared || name == own.name;
        }
        for (ComparedOption const& found : other) {
            if (is_compared && std::string_view(own.name) == found.name && own.hash != found.hash) {
                throw_error<InvalidArgument>(
                    {"zero: JointStep: engines 0 and ", number, " differ in '", own.name, "'",
                     own.is_value ? text({" (", own.hash, " and ", found.hash, ")"})
                                  : std::string(),
                     ", and their decision is one; ",
                     std::string_view(own.name).ends_with("ranks") ? ranks_remedy : remedy,
                     " (rank ", rank, ")."});
            }
        }
    }
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Makes the steps of several engines of a rank one decision: one norm, one clip
/// coefficient, one overflow or limit that skips them all, one next loss scale. They are those of
/// one engine that holds all parameters, to the last bit.
///
///     zero::JointStep joint(dense, experts); // on every rank, in the same order
///     for (...) {
///         joint.begin_step();
///         ... // micro-steps of both engines, for instance side by side
///         auto const [of_dense, of_experts] = joint.step(0.01);
///     }
///
/// The engines may differ in stage, types, optimizer and communicator: pipeline chunks, the parts
/// of a GAN, a dense part and experts (`Groups<C, Experts>`). Each of their groups of ranks covers
/// the same ranks, and the Backend is one. Equal are the loss scaler, `gradient_clipping`,
/// `non_finite`, `skip_above_norm`, `skip_limit`, `reduction.kind` and predivide; the number of
/// data ranks; and in a step of a mean the micro-steps.
///
/// Each engine reduces its integers over its own ranks, as it does alone; the queues add them, and
/// each then decides on the sum. So nothing more is sent, and the host does not wait. Collectives
/// are enqueued engine by engine, in the order of the constructor, which must be the same on every
/// rank: steps compare it, and that every rank has a JointStep. Engines may share a communicator;
/// over NCCL give each one of its own (`split`), or one `communication_queue` to all.
///
/// `StepReport` of each engine has the joint norm, coefficient and skip; `first_non_finite`,
/// `group_norms` and `zero_gradients` are the engine's own. An engine without gradients on any rank
/// has zeros, if another one has gradients.
///
/// While it lives, `step` of an engine throws OutOfOrder. Memory: a few hundred bytes for each
/// engine, from the first one's `options.memory`, not in a memory plan. A failure in one engine
/// breaks all. To cancel a step call `Engine::cancel_step` of each of them.
/// @tparam Configs those of the engines, which must outlive this object
template <class... Configs>
class JointStep {
    static constexpr std::size_t count = sizeof...(Configs);
    static_assert(count > 1, "zero::JointStep: one engine decides alone; give at least two.");
    using First = std::tuple_element_t<0, std::tuple<Configs...>>;
    using Backend = typename First::Backend;
    using Value = detail::ComparedOption;
    static_assert((std::is_same_v<typename Configs::Backend, Backend> && ...),
                  "zero::JointStep: the engines have different backends; queues of one backend "
                  "cannot wait for those of another.");
    static_assert((std::is_same_v<typename Configs::LossScaler, typename First::LossScaler> && ...),
                  "zero::JointStep: the engines have different loss scalers; name the same one in "
                  "all stages.");

public:
    using Tickets = std::tuple<StepTicket<Engine<Configs>>...>; ///< returned by `step`

    /// @brief Compares the engines of this rank. Waits; sends nothing.
    /// @throws InvalidArgument naming what differs
    [[gnu::cold]] explicit JointStep(Engine<Configs>&... engines)
        : _engines(engines...), _figures(memory(), count + 1, BufferKind::control) {
        auto const settings = settings_of(first());
        constexpr std::array<std::string_view, 9> names{
            "loss_scaler",    "gradient_clipping",   "non_finite", "skip_above_norm", "skip_limit",
            "reduction.kind", "reduction.predivide", "data ranks", "deciding ranks"};
        each([&](auto& engine, std::size_t number) {
            detail::require_joint(names, settings, settings_of(engine), number, "give all the same",
                                  rank());
            if (engine._protocol.is_joint()) {
                detail::throw_error<OutOfOrder>({"zero: JointStep: engine ", number,
                                                 " belongs to another one; let that end "
                                                 "first (rank ",
                                                 rank(), ")."});
            }
            each([&](auto& other, std::size_t second) {
                if (number < second && static_cast<void*>(&engine) == static_cast<void*>(&other)) {
                    detail::throw_error<InvalidArgument>(
                        {"zero: JointStep: engines ", number, " and ", second,
                         " are the same; give each once (rank ", rank(), ")."});
                }
            });
        });
        std::array<detail::JointFigures, count + 1> const none{};
        detail::Drain<Backend> const drain(first()._queue); // a command uses it
        Backend::copy_bytes(first()._queue, _figures.data(), none.data(), sizeof(none));
        require_same_states();
        each([](auto& engine, std::size_t number) {
            engine._control.set_joint(number, count);
            engine._protocol.set_joint(true);
        });
    }
    JointStep(JointStep const&) = delete;
    JointStep& operator=(JointStep const&) = delete;

    /// @brief Waits until no queued command uses its memory.
    ~JointStep() {
        each([](auto& engine, std::size_t) {
            detail::drain<Backend>(engine._queue, engine._before_capture);
            engine._control.set_kind({});
            engine._protocol.set_joint(false);
        });
    }

    /// @brief Calls `begin_step` of every engine. @throws what one of them throws; after
    /// OutOfOrder and InvalidArgument none has begun
    void begin_step() {
        guard(false, [&] {
            each([](auto& engine, std::size_t number) {
                detail::check_engine(number, [&] { engine.require_may_begin_step(); });
            });
        });
        std::exception_ptr error;
        each([&](auto& engine, std::size_t) {
            keep_best(error, engine, [&] { engine.begin_step(); });
        });
        rethrow(error);
    }

    /// @brief Ends the step of every engine, each as its `step` does, with one decision.
    /// Collective.
    /// @return the tickets in the order of the engines
    /// @throws what `Engine::step` throws. An error in the arguments or the order of calls of one
    /// engine leaves all unchanged; InvalidArgument also if the micro-steps of a mean, or loss
    /// scales, running norms or skipped steps differ, which a load or a setter changed in one
    Tickets step(double learning_rate, std::optional<std::int64_t> weight = {}) {
        auto evidence = detail::GradientEvidence::nothing;
        bool is_inspected = false;
        bool is_frozen = true;
        guard(false, [&] {
            each([&](auto& engine, std::size_t number) {
                detail::check_engine(number,
                                     [&] { engine.require_may_decide(learning_rate, weight); });
                std::size_t const steps = engine._protocol.micro_steps();
                std::size_t const of_first = first()._protocol.micro_steps();
                if (steps != of_first && engine._options.reduction.kind == ReductionKind::mean) {
                    detail::require_joint({}, {Value::of_value("micro-steps", of_first)},
                                          {Value::of_value("micro-steps", steps)}, number,
                                          "make as many in both, since a mean divides by them",
                                          rank());
                }
                is_inspected = is_inspected || engine._control.needs_inspection();
                if (engine._layout.trainable_buckets() != 0) {
                    evidence = detail::smaller(evidence, engine._gradients.deliveries().evidence());
                    is_frozen = false;
                }
            });
            evidence = is_frozen ? detail::GradientEvidence::delivered : evidence;
            if (marks() != _marks) {
                require_same_states();
            }
        });
        std::tuple<std::optional<StepTicket<Engine<Configs>>>...> tickets;
        guard(true, [&] {
            std::array<detail::StepInspection, count> found{};
            each([&](auto& engine, std::size_t number) {
                found[number] = engine.inspect(learning_rate, weight, evidence, is_inspected);
            });
            join(found);
            detail::JointDecision const joint{total()};
            each([&](auto& engine, std::size_t number) {
                engine._control.decide(found[number], learning_rate, engine._protocol.micro_steps(),
                                       engine.predivide(), joint);
            });
            each([](auto& engine, std::size_t) { engine.apply_update(); });
        });
        _marks = marks();
        std::exception_ptr error;
        [&]<std::size_t... Number>(std::index_sequence<Number...>) {
            auto const end = [&](auto& ticket, auto& engine) {
                keep_best(error, engine, [&] { ticket.emplace(engine.end_step()); });
            };
            (end(std::get<Number>(tickets), std::get<Number>(_engines)), ...);
        }(std::make_index_sequence<count>());
        rethrow(error);
        return std::apply([](auto&... ticket) { return Tickets{*ticket...}; }, tickets);
    }

private:
    template <class Call>
    void each(Call const& call) {
        [&]<std::size_t... Number>(std::index_sequence<Number...>) {
            (call(std::get<Number>(_engines), Number), ...);
        }(std::make_index_sequence<count>());
    }

    [[nodiscard]] auto& first() const noexcept { return std::get<0>(_engines); }
    [[nodiscard]] int rank() const { return first()._communicator->rank(); }
    [[nodiscard]] detail::JointFigures* total() noexcept { return _figures.data() + count; }

    [[nodiscard]] MemoryResource& memory() const {
        return detail::memory_for(*first()._communicator, first()._options.memory);
    }

    /// Enqueues the sum of the figures of all engines, on the queue of the first.
    void join(std::array<detail::StepInspection, count> const& found) {
        auto const hub = first()._queue;
        each([&]<class Config>(Engine<Config>& engine, std::size_t number) {
            Backend::run(engine._queue, engine._control.with_figures([&](auto* state, auto* groups,
                                                                         auto figures) {
                return detail::NoteJoint<detail::StepOf<Config>>{state,
                                                                 groups,
                                                                 figures,
                                                                 found[number].compares_order,
                                                                 engine._control.serial() + 1,
                                                                 _figures.data() + number};
            }));
            if (number != 0) {
                Backend::wait(hub, Backend::record(engine._queue), Fence::joint_inspected);
            }
        });
        Backend::run(hub, detail::AddJoint{_figures.data(), count, total()});
        auto const added = Backend::record(hub);
        each([&](auto& engine, std::size_t number) {
            if (number != 0) {
                Backend::wait(engine._queue, added, Fence::joint_added);
            }
        });
    }

    /// Returns everything that a decision depends on and that does not change.
    template <class Config>
    [[gnu::cold]] static detail::List<Value> settings_of(Engine<Config> const& engine) {
        auto const& communicator = *engine._communicator;
        auto settings = detail::compared_options(engine._number, engine._schedule,
                                                 engine.predivide(), engine._options, communicator);
        std::size_t deciding = static_cast<std::size_t>(communicator.size());
        if constexpr (ModelParallelCommunicator<typename Config::Communicator>) {
            deciding *= static_cast<std::size_t>(communicator.model().size());
        }
        for (Value const& value : detail::List<Value>{
                 {"reduction.kind", Hash().add(engine._options.reduction.kind).value()},
                 {"reduction.predivide", Hash().add(double{engine.predivide()}).value()},
                 Value::of_value("data ranks", detail::data_size_of(communicator)),
                 Value::of_value("deciding ranks", deciding)}) {
            settings.push_back(value);
        }
        return settings;
    }

    /// Requires that the engines decide alike from now on. Waits.
    [[gnu::cold]] void require_same_states() {
        auto const state_of = [](auto& engine) {
            auto const state = engine._control.settled();
            Hash norm;
            if (engine._control.limits_norm()) {
                RunningNorm const running = engine._control.running_norm();
                norm.add(running.mean).add(running.steps).add(running.too_large);
            }
            return detail::List<Value>{
                Value::of_value("steps since construction", engine._control.serial()),
                {"state of the loss scaler", engine._control.hash_of(state.scaler)},
                {"running norm", norm.value()},
                Value::of_value("steps skipped in a row", state.skipped_in_a_row)};
        };
        auto const states = state_of(first());
        each([&](auto& engine, std::size_t number) {
            detail::require_joint(
                {}, states, state_of(engine), number,
                "make them together, step them through a JointStep only, and set or load the "
                "same in all",
                rank());
        });
        _marks = marks();
    }

    /// Numbers that change with every step of an engine and every call that sets its states.
    [[nodiscard]] std::array<std::uint64_t, count> marks() {
        std::array<std::uint64_t, count> all{};
        each([&](auto& engine, std::size_t number) {
            all[number] = engine._control.serial() + engine._control.changes();
        });
        return all;
    }

    /// Keeps the first exception of all engines, or that of the engine that can name an element
    /// which is not finite.
    template <class Config, class Body>
    static void keep_best(std::exception_ptr& kept, Engine<Config> const& engine,
                          Body const& body) {
        try {
            body();
        } catch (...) {
            std::exception_ptr const own = std::current_exception();
            bool is_better = !kept;
            try {
                is_better = is_better || engine.last_report().first_non_finite >= 0;
            } catch (...) { // of an engine that failed, or of a queue that is captured
            }
            kept = is_better ? own : kept;
        }
    }

    void rethrow(std::exception_ptr const& error) {
        if (error) {
            guard(false, [&] { std::rethrow_exception(error); });
        }
    }

    /// Calls `body`. After an exception all engines are broken if one of them is.
    /// @param is_failure whether any exception breaks them
    template <class Body>
    void guard(bool is_failure, Body const& body) {
        try {
            body();
        } catch (std::exception const& error) {
            spread(is_failure, error.what());
            throw;
        } catch (...) {
            spread(is_failure, "an exception that is not a std::exception");
            throw;
        }
    }

    void spread(bool is_failure, char const* cause) noexcept {
        each([&](auto& engine, std::size_t) {
            is_failure = is_failure || engine._protocol.is_broken();
        });
        each([&](auto& engine, std::size_t) {
            if (is_failure && !engine._protocol.is_broken()) {
                engine.break_down(cause);
            }
        });
    }

    std::tuple<Engine<Configs>&...> _engines;
    Buffer<detail::JointFigures> _figures; ///< of each engine, then their sum
    std::array<std::uint64_t, count> _marks{};
};

} // namespace ZERO_NAMESPACE
