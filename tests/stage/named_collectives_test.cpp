#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/hierarchical.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

// Collectives between steps say which array they move, so ranks that mean different ones are told,
// also by transports that compare no tags.

namespace zero::test::named_collectives_test {

namespace {

using namespace state_model;

constexpr std::size_t weight = 1; // of the toy model, 500 elements

/// Passes calls on without their tags, as a transport that sends none does. Ranks that differ only
/// in a tag get each other's data.
class Untagged {
public:
    using policy_category = CommunicatorCategory;
    using Backend = HostBackend;
    using Queue = Backend::Queue;
    using Cuts = std::span<std::size_t const>;

    explicit Untagged(LoopbackCommunicator& inner) : _inner(&inner) {}
    [[nodiscard]] int rank() const { return _inner->rank(); }
    [[nodiscard]] int size() const { return _inner->size(); }

    template <class T>
    void reduce_scatter(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag = {}) {
        _inner->reduce_scatter(send, receive, cuts, queue);
    }
    template <class T>
    void all_gather(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag = {}) {
        _inner->all_gather(send, receive, cuts, queue);
    }
    template <class T>
    void all_reduce(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag = {}) {
        _inner->all_reduce(send, receive, cuts, queue);
    }
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag = {}) {
        _inner->broadcast(buffer, elements, root, queue);
    }
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag = {}) {
        _inner->all_reduce_integers(values, elements, reduction, queue);
    }
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _inner->abort(cause, is_provisional);
    }

private:
    LoopbackCommunicator* _inner;
};

static_assert(LoopbackCommunicator::compares_calls && Checked<Untagged>::compares_calls);
static_assert(!Hierarchical<LoopbackCommunicator, Untagged>::compares_calls);
static_assert(!zero::detail::compares_calls<Untagged>);

/// Runs `call(engine, state, is_first)` on two ranks of an engine over `Communicator`; with
/// gradients, between the last micro-step and `step`.
template <int N, class Communicator, class Call>
std::vector<Outcome> run(bool has_gradients, Call const& call) {
    using Stage = ZeroStage<N, Parameters<bfloat16>, Communicator>;
    return run_and_observe(2,
                           [&](LoopbackCommunicator& loopback) {
                               Communicator communicator(loopback);
                               Toy<Stage> toy(communicator);
                               TrainingState state(*toy.engine);
                               if (has_gradients) {
                                   toy.engine->begin_step();
                                   toy.engine->begin_micro_step(MicroStep::last);
                                   toy.engine->end_micro_step();
                               }
                               call(*toy.engine, state, loopback.rank() == 0);
                           })
        .ranks;
}

/// Checks that both ranks get a mismatch that holds both texts.
void check_told(std::vector<Outcome> const& ranks, std::string const& first,
                std::string const& second) {
    for (Outcome const& outcome : ranks) {
        CHECK(outcome.type == "CollectiveMismatch");
        CHECK_THAT(outcome.message, contains_text(first) && contains_text(second));
    }
}

/// Checks every pair of calls, in one stage over one transport.
template <int N, class Communicator>
void check_pairs() {
    auto const between = [](auto const& call) { return run<N, Communicator>(false, call); };
    std::vector<float> const values(500, 2.0F);
    check_told(between([](auto&, auto& state, bool is_first) {
                   (void)state.full_optimizer_state(weight, is_first ? "exp_avg_sq" : "exp_avg");
               }),
               "state 1", "state 0");
    check_told(between([](auto&, auto& state, bool is_first) {
                   (void)(is_first ? state.full_optimizer_state(weight, "exp_avg_sq")
                                   : state.full_fp32_parameter(weight));
               }),
               "for 'exp_avg_sq'", "'full values of parameter 1'");
    check_told(between([&](auto&, auto& state, bool is_first) {
                   state.set_full_optimizer_state(weight, is_first ? "exp_avg" : "exp_avg_sq",
                                                  values);
               }),
               "for 'exp_avg'", "for 'exp_avg_sq'");
    check_told(between([&](auto&, auto& state, bool is_first) {
                   is_first ? state.set_full_optimizer_state(weight, "exp_avg", values)
                            : state.set_full_fp32_parameter(weight, values);
               }),
               "state 0: parameter and size", "'parameter and size");
    check_told(run<N, Communicator>(true,
                                    [&](auto&, auto& state, bool is_first) {
                                        state.set_full_gradient(weight, values,
                                                                is_first ? GradientForm::scaled
                                                                         : GradientForm::unscaled);
                                    }),
               "'scaled gradient: ", "'unscaled gradient: ");
    check_told(between([](auto& engine, auto& state, bool is_first) {
                   is_first ? engine.parameters_changed() : state.publish_master_weights();
               }),
               "'parameters_changed()", "'publish_master_weights()");
    check_told(between([](auto&, auto& state, bool is_first) {
                   if (is_first) {
                       state.refresh_master_weights();
                   }
                   (void)state.full_fp32_parameter(0);
               }),
               "'parameters_changed()", "'full values of parameter 0'");
    check_told(between([](auto&, auto& state, bool is_first) {
                   if (is_first) {
                       state.publish_master_weights();
                   }
                   (void)state.full_fp32_parameter(0);
               }),
               "'publish_master_weights()", "'full values of parameter 0'");
}

} // namespace

TEST_CASE("Ranks that read or set different arrays, or publish and refresh, get a "
          "CollectiveMismatch that names both") {
    in_every_stage([]<int N>() { check_pairs<N, Untagged>(); });
    check_pairs<0, Checked<LoopbackCommunicator>>();
    check_pairs<3, Checked<LoopbackCommunicator>>();
}

TEST_CASE("A rank that alone refreshes its master weights before a step is told") {
    in_every_stage([]<int N>() {
        for (Outcome const &outcome :
             run<N, Checked<LoopbackCommunicator>>(false, [](auto& engine, auto&, bool is_first) {
                 if (is_first) {
                     engine.parameters_changed();
                 }
                 (void)run_step(engine, 0, 0).report();
             })) {
            CHECK(outcome.type == "CollectiveMismatch");
            CHECK_THAT(outcome.message, contains_text("'parameters_changed()"));
        }
    });
}

TEST_CASE("Over a transport without tags, equal calls return what the loopback returns") {
    auto const states = []<class Communicator>(Communicator*) {
        return on_ranks<std::vector<float>>(2, [](LoopbackCommunicator& loopback) {
            using Stage = ZeroStage<2, Parameters<bfloat16>, Communicator>;
            Communicator communicator(loopback);
            Toy<Stage> toy(communicator);
            (void)run_step(*toy.engine, static_cast<std::uint64_t>(loopback.rank()), 0).report();
            TrainingState state(*toy.engine);
            state.set_full_optimizer_state(0, "exp_avg", some_values(Exact::every_float, 3, 0));
            state.publish_master_weights();
            std::vector<float> all = state.full_fp32_parameter(weight);
            for (std::string const& name : state.state_names()) {
                for (std::size_t const parameter : {std::size_t{0}, weight}) {
                    auto const values = state.full_optimizer_state(parameter, name);
                    all.insert(all.end(), values.begin(), values.end());
                }
            }
            return all;
        });
    };
    auto const untagged = states(static_cast<Untagged*>(nullptr));
    CHECK(untagged == states(static_cast<Checked<LoopbackCommunicator>*>(nullptr)));
    CHECK(untagged[0] == untagged[1]);
    CHECK(untagged[0].size() == 500 + 2 * (300 + 500));
}

} // namespace zero::test::named_collectives_test
