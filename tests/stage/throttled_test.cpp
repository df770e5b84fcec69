// Steps between hosts with slow links take the virtual time that the cost model predicts.

#include "stage/throttled_model.hpp"
#include "support/catch.hpp"

#include <zero/comm/sum_over_ranks.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::test::throttled_test {

namespace {

using namespace throttled_model;

/// Links of 8 bytes per second inside a host and 1 byte per second between two ranks.
Hosts slow_hosts() {
    return {.links = {.inside = {.bytes_per_second = 8}, .between = {.bytes_per_second = 1}}};
}

/// Requires what the cost model predicts, and equal times of all ranks: none waits for another.
Seconds check(Seconds const& step) {
    CHECK(step.shortest == Approx(step.throttled).epsilon(1e-9));
    CHECK(step.throttled == Approx(step.predicted).epsilon(0.01));
    return step;
}

} // namespace

TEST_CASE("A throttled collective keeps the links of a rank busy with what it reads, and for one "
          "latency of each message") {
    // hosts of ranks 0, 1 and 2; rank 1 owns 2 of 8 floats
    auto const seconds = on_ranks<std::vector<double>>(3, [](LoopbackCommunicator& all) {
        Links links{.inside = {0.5, 16}, .between = {4, 1}};
        Link link(all, links, {0, 0, 1});
        std::vector<double> times;
        auto const note = [&] {
            times.push_back(links.seconds_inside);
            times.push_back(links.seconds_between);
            links.reset();
        };
        std::vector<std::size_t> const cuts{0, 4, 6, 8};
        std::vector<float> whole(8, 1.0F);
        std::vector<float> pieces(12);
        auto const queue = HostBackend::default_compute_queue();
        link.reduce_scatter<float>(whole.data(), pieces.data(), cuts, queue);
        note();
        link.all_gather<float>(pieces.data(), whole.data(), cuts, queue);
        note();
        link.all_reduce<float>(whole.data(), whole.data(), cuts, queue);
        note();
        link.exchange<float>(whole.data(), pieces.data(), cuts, queue);
        note();
        link.broadcast<float>(whole.data(), 8, 2, queue);
        note();
        std::vector<std::int64_t> integers(2, 1);
        link.all_reduce_integers(integers.data(), 2, IntegerReduction::sum, queue);
        note();
        return times;
    });
    // of rank 1: 8 bytes from each other rank; 16 inside and 8 between; both; 32 bytes of rank 2
    CHECK(seconds[1] == std::vector<double>{1, 12, 1.5, 12, 2.5, 24, 1, 12, 0, 36, 1.5, 0});
    // integers of rank 2: from rank 0, and rank 3 does not exist
    CHECK(seconds[2][10] == 0);
    CHECK(seconds[2][11] == 20);
    CHECK(seconds[2][9] == 0); // the root reads nothing
}

TEST_CASE("Over links of 1:8 a step on 2 x 2 ranks is 2.3 times as fast with hybrid sharding, 1.4 "
          "times with secondary copies, and as the formulas say with weights in codes") {
    auto const flat = check(measure<3, Flat>(slow_hosts()));
    // bytes of a pass: 1/4 inside, 1/2 between
    double const pass = 2.0 * static_cast<double>(slow_hosts().elements) * (0.25 / 8 + 0.5);
    CHECK(flat.throttled == Approx(3 * pass).epsilon(0.01));
    auto const gain = [&](Seconds const& step) { return flat.throttled / check(step).throttled; };
    CHECK(gain(measure<3, InHosts>(slow_hosts())) == Approx(2.318).epsilon(0.01));
    CHECK(gain(measure<3, Copies>(slow_hosts())) == Approx(1.417).epsilon(0.01));
    // two of three passes take 66 bytes for 128
    CHECK((gain(measure<3, Flat, Wire<Int8Blocks>>(slow_hosts(), 66)))
          == Approx(3 / (1 + 2 * 66.0 / 128)).epsilon(0.01));
    CHECK((gain(measure<3, Flat, Wire<Int4Blocks>>(slow_hosts(), 34)))
          == Approx(3 / (1 + 2 * 34.0 / 128)).epsilon(0.01));
    // forward 66/128 of a pass, backward half of the bytes inside, the reduction a whole pass
    CHECK((gain(measure<3, Copies, Wire<Int8Blocks>>(slow_hosts(), 66)))
          == Approx(3 * 0.53125 / (0.53125 * (1 + 66.0 / 128) + 0.0625)).epsilon(0.01));
    check(measure<3, InHosts, Wire<Int8Blocks>>(slow_hosts(), 66));
}

TEST_CASE("Sums between replicas in codes take their share of the bytes between hosts") {
    auto const plain = check(measure<3, InHosts>(slow_hosts()));
    // three passes of 1/2 inside; between hosts 2 (R-1)/(G R) of the bytes
    double const inside = 3 * 0.5 / 8;
    auto const gain = [&](Seconds const& step) { return plain.throttled / check(step).throttled; };
    using In8Bits = Wire<Plain, Level<Plain, Int8Blocks>>;
    using In4Bits = Wire<Plain, Level<Plain, Int4Blocks>>;
    CHECK((gain(measure<3, InHosts, In8Bits>(slow_hosts())))
          == Approx((inside + 0.5) / (inside + 0.5 * 66 / 128)).epsilon(0.01));
    CHECK((gain(measure<3, InHosts, In4Bits>(slow_hosts())))
          == Approx((inside + 0.5) / (inside + 0.5 * 34 / 128)).epsilon(0.01));
    // both levels, and weights: 8 bits for two passes, 4 for the third and between
    CHECK((gain(measure<3, InHosts, Wire<Int8Blocks, Int4Blocks>>(slow_hosts(), 66)))
          == Approx((inside + 0.5) / (inside * (2 * 66 + 34) / (3 * 128) + 0.5 * 34 / 128))
                 .epsilon(0.01));
    check(measure<2, InHosts, Wire<Plain, Level<Int4Blocks, Int8Blocks>>>(slow_hosts()));
}

TEST_CASE("With weights in 8 bits and gradients in 4 a step is 2.3 times as fast in stage 3, and "
          "2.56 times in stage 2") {
    using Both = Wire<Int8Blocks, Int4Blocks>;
    auto const gain = [](Seconds const& flat, Seconds const& coded) {
        return check(flat).throttled / check(coded).throttled;
    };
    CHECK((gain(measure<3, Flat>(slow_hosts()), measure<3, Flat, Both>(slow_hosts(), 66)))
          == Approx(3 / (2 * 66.0 / 128 + 34.0 / 128)).epsilon(0.01)); // 2.31
    CHECK((gain(measure<2, Flat>(slow_hosts()), measure<2, Flat, Both>(slow_hosts(), 66)))
          == Approx(2.56).epsilon(0.01));
    // without the codec of gradients the model is off by far
    CHECK(measure<2, Flat, Both>(slow_hosts(), 66).throttled
          < 0.7 * measure<2, Flat, Wire<Int8Blocks>>(slow_hosts(), 66).predicted);
}

TEST_CASE("In stage 2 the reduction and the publication follow the model as well") {
    auto const flat = check(measure<2, Flat>(slow_hosts()));
    auto const coded = check(measure<2, Flat, Wire<Int8Blocks>>(slow_hosts(), 66));
    CHECK(flat.throttled / coded.throttled == Approx(2 / (1 + 66.0 / 128)).epsilon(0.01));
    check(measure<2, InHosts>(slow_hosts()));
}

TEST_CASE("The model holds for other numbers of hosts, ranks and micro-steps, and with latencies") {
    for (std::size_t const micro_steps : {1U, 3U}) {
        Hosts hosts = slow_hosts();
        hosts.hosts = 3;
        hosts.micro_steps = micro_steps;
        hosts.elements = std::size_t{3} << 16U;
        hosts.links.inside.latency_seconds = 1000;
        hosts.links.between.latency_seconds = 10000;
        auto const near = [](Seconds const& step) { // a decision takes other messages
            CHECK(step.throttled == Approx(step.predicted).epsilon(0.1));
            return step.throttled;
        };
        double const flat = near(measure<3, Flat>(hosts));
        CHECK(flat > 1.1
                         * measure<3, Flat>({.hosts = 3,
                                             .links = slow_hosts().links,
                                             .micro_steps = micro_steps,
                                             .elements = hosts.elements})
                               .throttled);
        CHECK(near(measure<3, InHosts>(hosts)) < flat);
        CHECK(near(measure<3, Copies>(hosts)) < flat);
        hosts.hosts = 2;
        hosts.ranks_per_host = 3;
        near(measure<3, InHosts>(hosts));
    }
}

TEST_CASE("Replicas share the bandwidth of a host, and replicas of one host the level inside") {
    // 8 ranks, hosts of 4, links of 8 bytes per second inside and 4 for a host; 1000 bytes read
    CommunicationModel const model({.bytes_per_second = 8}, {.bytes_per_second = 4}, 4,
                                   CollectiveAlgorithm::direct);
    StepCommunication step;
    step.replicated = {2, 600};
    step.replicas = 2;
    CHECK(model.predict(4, step).reductions == 600); // 4 sums at once
    step.replicas = 4;
    // groups of 2: of 3 other replicas 1 is on this host, and 2 sums go over its links at once
    CHECK(model.predict(2, step).reductions == 200 / 8.0 + 400 * 2 * 2 / 4.0);
    step.replicas = 8;
    CHECK(model.predict(1, step).reductions == Approx(600 * 3 / 7.0 / 8 + 600 * 4 / 7.0 * 4 / 4.0));
    // what the layout of 2 ranks says: half of 128 elements, sent and gathered in two steps
    auto const layout = make_layout<ContiguousPartitioner, SizeCappedBucketer>(
        std::vector<ParameterSpec>{{"only", 256, {0}, 0, true}}, {.world = 2, .element_bytes = 4});
    StepCommunicationOptions options{.sizes = {.communication = 2}, .replicas = 2};
    auto const replicated = [&] {
        return count_step_communication(layout, 0, 2, ReductionSchedule::every_micro_step, 1, {},
                                        options)
            .replicated;
    };
    CHECK(replicated() == CommunicationTerm{2, 128 * 2});
    options.replica_element_bytes = 4;
    CHECK(replicated() == CommunicationTerm{2, 128 * 4});
    options.wire_elements = 64;
    CHECK(replicated() == CommunicationTerm{4, 128 * 4});
    options.replica_block_bytes = 34;
    CHECK(replicated() == CommunicationTerm{2, 2 * 34});
    CommunicationModel const flat({.latency_seconds = 1, .bytes_per_second = 8});
    CHECK(flat.predict(1, step).reductions == 2 * 7 + 75);
}

} // namespace zero::test::throttled_test
