// Over links that carry a gather and a reduction at once, a backward pass takes the longer of the
// two instead of their sum. The clock is virtual: commands run at once and take no time, except for
// collectives and the model.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/detail/decorator.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::own_gathers_overlap_test {

namespace {

/// A queue that runs commands at once, and knows what time it would be.
class ClockQueue final : public host::Queue {
public:
    double now = 0;

    [[nodiscard]] host::Event record() override { return {}; }
    void wait(host::Event const& event) override { event.synchronise(); }
    void rethrow_failure() const override {}

private:
    void push(host::Command command) override { command(); }
};

struct ClockBackend : HostBackend {
    using Queue = ClockQueue*;
    using OwnedQueue = ClockQueue;
    struct Event {
        double at = 0;
    };

    static Queue handle(OwnedQueue& queue) noexcept { return &queue; }
    static Queue default_compute_queue() noexcept {
        thread_local ClockQueue queue;
        return &queue;
    }
    static Event record(Queue queue) { return {queue->now}; }
    static void wait(Queue queue, Event const& event, Fence) {
        queue->now = std::max(queue->now, event.at);
    }
    static void synchronise(Event const& /*event*/) {}
    static void rethrow_failure(Queue /*queue*/) {}
};

/// A collective that kept the link busy.
struct Busy {
    bool is_gather;
    double begin, end;
};

/// Seconds of an element, and what happened.
struct Link {
    double gather = 0, reduction = 0;
    std::vector<Busy> log{};
};

/// A communicator whose rank reads in gathers and writes in reductions, at full speed in both
/// directions at once. Collectives on one queue follow one another.
class FullDuplex : public zero::detail::CommunicatorDecorator<FullDuplex, Loopback<ClockBackend>> {
    using Inner = Loopback<ClockBackend>;
    using Base = zero::detail::CommunicatorDecorator<FullDuplex, Inner>;
    friend Base;

public:
    using Queue = typename Base::Queue;

    FullDuplex(Inner& inner, Link& link) : Base(inner), _link(&link) {}

    FullDuplex split(int color, int key) {
        return FullDuplex(std::make_unique<Inner>(inner().split(color, key)), _link);
    }

private:
    FullDuplex(std::unique_ptr<Inner> part, Link* link)
        : Base(*part), _part(std::move(part)), _link(link) {}

    template <class T, class Forward>
    void around(zero::detail::DecoratedCall const& call, Queue queue, Forward const& forward) {
        forward();
        bool const is_gather = call.kind == CollectiveKind::all_gather;
        if (is_gather || call.kind == CollectiveKind::reduce_scatter) {
            double const begin = queue->now;
            queue->now +=
                static_cast<double>(call.count) * (is_gather ? _link->gather : _link->reduction);
            _link->log.push_back({is_gather, begin, queue->now});
        }
    }

    std::unique_ptr<Inner> _part;
    Link* _link;
};
static_assert(SplittableCommunicator<FullDuplex>);

constexpr std::size_t units = 32;
constexpr std::size_t elements = 128; ///< of a unit

/// Of the backward pass of one micro-step, in units of the longer of two collectives.
struct Seen {
    double seconds = 0;
    std::string picture; ///< a character for each quarter of it
};

std::string row(std::vector<Busy> const& log, bool is_gather, double begin, double quarter,
                std::size_t size) {
    std::string row(size, '.');
    for (Busy const& busy : log) {
        for (std::size_t i = 0; i < size && busy.is_gather == is_gather; ++i) {
            double const at = begin + (static_cast<double>(i) + 0.5) * quarter;
            row[i] = busy.begin <= at && at < busy.end ? '#' : row[i];
        }
    }
    return row;
}

/// @param gather seconds of a gather, @param reduction seconds of a reduction, @param compute
/// seconds of the backward pass of a unit
Seen backward_pass(bool is_apart, double gather, double reduction, double compute = 0) {
    auto const ranks =
        on_ranks<Seen, Loopback<ClockBackend>>(2, [&](Loopback<ClockBackend>& inner) {
            Link link{gather / elements, reduction / elements};
            FullDuplex communicator(inner, link);
            std::vector<Parameter<float>> parameters;
            for (std::size_t unit = 0; unit < units; ++unit) {
                parameters.push_back(
                    {.name = std::to_string(unit), .elements = elements, .units = {unit}});
            }
            ClockQueue communication;
            ClockQueue model;
            ZeroStage<3, FullDuplex> engine(communicator, parameters,
                                            {.gather = {.own_communicator = is_apart},
                                             .compute_queue = &model,
                                             .communication_queue = &communication});
            Seen seen;
            for (std::size_t step = 0; step < 2; ++step) { // the first one records the order
                engine.begin_step();
                engine.begin_micro_step();
                for (std::size_t unit = 0; unit < units; ++unit) {
                    (void)engine.acquire(unit);
                }
                model.now = std::max(model.now, communication.now);
                double const begin = model.now;
                link.log.clear();
                for (std::size_t unit = units; unit-- > 0;) {
                    auto const weights = engine.acquire(unit);
                    auto const gradients = engine.gradients(unit);
                    gradients[unit][0] = 1.0F;
                    model.now += compute;
                    engine.gradients_ready(unit);
                }
                engine.end_micro_step();
                double end = model.now;
                for (Busy const& busy : link.log) {
                    end = std::max(end, busy.end);
                }
                double const longer = std::max(gather, reduction);
                seen.seconds = (end - begin) / longer;
                constexpr std::size_t size = 28;
                seen.picture = "gather " + row(link.log, true, begin, longer / 4, size)
                               + "\nreduce " + row(link.log, false, begin, longer / 4, size);
                engine.step(0.1);
            }
            return seen;
        });
    CHECK(ranks[0].seconds == Approx(ranks[1].seconds).epsilon(1e-12));
    return ranks[0];
}

} // namespace

TEST_CASE("With gathers of their own a backward pass of 32 units takes at most 1 / 0.95 of the "
          "longer of its gathers and reductions, and otherwise their sum") {
    struct Case {
        double gather, reduction;
    };
    for (Case const c : {Case{1, 1}, Case{1, 0.5}, Case{0.5, 1}, Case{1, 0.1}, Case{0.1, 1}}) {
        CAPTURE(c.gather, c.reduction);
        // the last unit of the forward pass is gathered anew as well
        double const together = units * (c.gather + c.reduction) / std::max(c.gather, c.reduction);
        double const seconds = backward_pass(false, c.gather, c.reduction).seconds;
        CHECK(seconds == Approx(together).epsilon(1e-9));
        double const apart = backward_pass(true, c.gather, c.reduction).seconds;
        CHECK(apart >= units - 1e-9);
        CHECK(apart <= units / 0.95);
        CHECK(apart == Approx(units + std::min(c.gather, c.reduction)).epsilon(1e-9));
    }
}

TEST_CASE("Gathers of their own change nothing where the model takes longer than both") {
    double const together = backward_pass(false, 1, 1, 3).seconds;
    double const apart = backward_pass(true, 1, 1, 3).seconds;
    CHECK(apart == Approx(1 + 3.0 * units + 1).epsilon(1e-9)); // first gather, last reduction
    CHECK(together == Approx(apart).epsilon(1e-9));
}

TEST_CASE("The timeline of a backward pass: reductions of a unit beside the gather of the next") {
    CHECK(backward_pass(false, 1, 1).picture
          == "gather ########....####....####....\n"
             "reduce ........####....####....####");
    CHECK(backward_pass(true, 1, 1).picture
          == "gather ############################\n"
             "reduce ....########################");
}

} // namespace zero::test::own_gathers_overlap_test
