#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

#include <limits>

// Latencies and bandwidths are powers of two, so all seconds are exact.

namespace zero::test::communication_model_test {

namespace {

constexpr auto boundary = ReductionSchedule::boundary;
constexpr auto every = ReductionSchedule::every_micro_step;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

constexpr NetworkLevel slow{0.25, 1024};
constexpr NetworkLevel slower{1, 512};

/// W = 2: the buckets hold 1024 and 512 elements, of which a rank reads 768 from the other one.
FlatLayout two_buckets() {
    return make_layout<ContiguousPartitioner, UnitBucketer>(model_of_sizes({1000, 500}),
                                                            {2, 4, true});
}

double seconds(CollectiveAlgorithm algorithm, std::size_t world, CommunicationTerm term,
               std::size_t ranks_per_host = 2) {
    return CommunicationModel(slow, slower, ranks_per_host, algorithm)
        .collective_seconds(world, term);
}

} // namespace

TEST_CASE("On one level a collective takes W - 1 latencies and the time of what a rank reads") {
    CommunicationModel const model(slow);
    // 3 calls of 3 messages of 0.25 s, and 3072 B at 1024 B/s.
    CHECK(model.collective_seconds(4, {3, 3072}) == 5.25);
    CHECK(model.collective_seconds(2, {1, 512}) == 0.75);
    CHECK(model.collective_seconds(1, {3, 0}) == 0);
    CHECK(model.collective_seconds(16384, {1, 0}) == 4095.75);
}

TEST_CASE("On two levels each algorithm moves what its formula says") {
    // 2 hosts of 2 ranks gather 4096 B, of which a rank reads 3072 B.
    CommunicationTerm const gather{1, 3072};
    // 3 messages of max(0.25, 1) s; 3072 B at 512 B/s.
    CHECK(seconds(CollectiveAlgorithm::ring, 4, gather) == 9);
    // 0.25 s and 1024 B at 1024 B/s; 2 s and twice 2048 B at 512 B/s.
    CHECK(seconds(CollectiveAlgorithm::direct, 4, gather) == 11.25);
    // 0.25 s and 2048 B at 1024 B/s; 1 s and 2048 B at 512 B/s.
    CHECK(seconds(CollectiveAlgorithm::hierarchical, 4, gather) == 7.25);
}

TEST_CASE("On one host, and with one rank per host, all algorithms take the time of one level") {
    CommunicationTerm const term{2, 3072};
    for (auto const algorithm : {CollectiveAlgorithm::ring, CollectiveAlgorithm::direct,
                                 CollectiveAlgorithm::hierarchical}) {
        INFO(name_of(algorithm));
        double const inside = CommunicationModel(slow).collective_seconds(4, term);
        double const between = CommunicationModel(slower).collective_seconds(4, term);
        CHECK(inside == 4.5); // 6 * 0.25 + 3
        CHECK(between == 12); // 6 * 1 + 6
        CHECK(seconds(algorithm, 4, term, 4) == inside);
        CHECK(seconds(algorithm, 4, term, 8) == inside);
        CHECK(seconds(algorithm, 4, term, 1) == between);
        CHECK(seconds(algorithm, 8, term, 4) != inside);
    }
}

TEST_CASE("A few integers take as many messages as the logarithm of the ranks on each level") {
    // 5 ranks: 3 rounds; 2 calls, 64 B altogether: 6 * 0.25 + 3 * 64 / 1024.
    CHECK(CommunicationModel(slow).control_seconds(5, {2, 64}) == 1.6875);
    CHECK(CommunicationModel(slow).control_seconds(1, {2, 64}) == 0);
    // 5 hosts of 3 ranks: 2 and 3 rounds: 2 (0.25 + 64 / 1024) + 3 (1 + 64 / 512).
    CHECK(CommunicationModel(slow, slower, 3).control_seconds(15, {1, 64}) == 4);
}

TEST_CASE("Each stage has its own collectives") {
    auto const layout = two_buckets();
    CommunicationTerm const once{2, 3072}; // 768 floats in two buckets
    CommunicationTerm const control{1, 8};
    CHECK(count_step_communication(layout, 0, 0, boundary, 3, {})
          == StepCommunication{{}, {4, 6144}, {}, control});
    // Three reduce-scatters, and a gather of the sums.
    CHECK(count_step_communication(layout, 1, 0, every, 3, {})
          == StepCommunication{{}, {8, 12288}, {}, control});
    CHECK(count_step_communication(layout, 0, 1, boundary, 3, {})
          == StepCommunication{{}, once, once, control});
    CHECK(count_step_communication(layout, 1, 2, every, 3, {})
          == StepCommunication{{}, {6, 9216}, once, control});
    std::size_t const acquired[] = {0, 1, 1, 0};
    CHECK(count_step_communication(layout, 0, 3, every, 1, acquired)
          == StepCommunication{{4, 6144}, once, {}, control});
    // Unit 1 is used twice in a row, so one kept unit saves one of its gathers: 512 or 256 floats.
    StepCommunicationOptions options;
    options.gather.keep_after_forward = 1;
    CHECK(count_step_communication(layout, 0, 3, every, 1, acquired, options).gathers.calls == 3);
    options.gather.keep_after_forward = GatherOptions::all;
    CHECK(count_step_communication(layout, 0, 3, every, 1, acquired, options)
          == StepCommunication{once, once, {}, control});
}

TEST_CASE("Gradients are counted in the type and in the chunks in which they are sent") {
    ElementSizes const sizes{.parameter = 2, .communication = 2, .accumulation = 4};
    StepCommunicationOptions const options{
        .sizes = sizes, .wire_elements = 256, .control_calls = 2, .control_bytes = 192};
    // Chunks of 128 elements per rank: 512 and 256 elements take 4 and 2.
    CHECK(count_step_communication(two_buckets(), 0, 1, boundary, 1, {}, options)
          == StepCommunication{{}, {6, 1536}, {2, 1536}, {2, 192}});
    CHECK(count_step_communication(two_buckets(), 0, 0, boundary, 1, {}, options)
          == StepCommunication{{}, {12, 3072}, {}, {2, 192}});
    // Stage 0 gathers the sums of several reductions in the type of the sums, bucket by bucket.
    CHECK(count_step_communication(two_buckets(), 0, 0, every, 2, {}, options)
          == StepCommunication{{}, {14, 2 * 1536 + 3072}, {}, {2, 192}});
}

TEST_CASE(
    "In a tree floats travel between levels, so two bytes of a gradient count as four there") {
    StepCommunicationOptions options{
        .sizes = {.parameter = 2, .communication = 2, .accumulation = 4}, .in_tree = true};
    CHECK(count_step_communication(two_buckets(), 0, 1, every, 2, {}, options).reductions
          == CommunicationTerm{4, 2 * 1536, 2 * 3072});
    CHECK(count_step_communication(two_buckets(), 0, 0, every, 1, {}, options).reductions
          == CommunicationTerm{4, 1536 + 3072, 3072 + 3072});
    // 0.25 s and 2048 B at 1024 B/s; 1 s and 4096 B at 512 B/s.
    CHECK(seconds(CollectiveAlgorithm::hierarchical, 4, {1, 3072, 6144}) == 11.25);
    CHECK(seconds(CollectiveAlgorithm::direct, 4, {1, 3072, 6144})
          == seconds(CollectiveAlgorithm::direct, 4, {1, 3072}));
    for (std::size_t const inner : {0U, 1U, 2U, 3U}) { // of 2 ranks
        CHECK_THROWS_WITH(step_traffic_of_levels(two_buckets(), 0, inner, 1, every, 1, {}),
                          contains_text("zero: 2 ranks do not have two levels"));
    }
}

TEST_CASE("A single rank communicates nothing") {
    auto const layout =
        make_layout<ContiguousPartitioner, UnitBucketer>(model_of_sizes({1000, 500}), {1, 4, true});
    std::size_t const acquired[] = {0, 1};
    for (int const stage : {0, 1, 2, 3}) {
        auto const step = count_step_communication(layout, 0, stage, every, 2, acquired);
        CHECK(step == StepCommunication{});
        CHECK(CommunicationModel(slow).predict(1, step).total() == 0);
    }
}

TEST_CASE("The predicted step is the sum of its named terms") {
    CommunicationModel const model(slow);
    auto const one =
        model.predict(2, count_step_communication(two_buckets(), 0, 1, boundary, 1, {}));
    CHECK(one.gathers == 0);
    CHECK(one.reductions == 3.5); // 2 * 0.25 + 3072 / 1024
    CHECK(one.publishes == 3.5);
    CHECK(one.control == 0.2578125); // 0.25 + 8 / 1024
    CHECK(one.total() == 7.2578125);
    std::size_t const acquired[] = {0, 1, 1, 0};
    auto const three =
        model.predict(2, count_step_communication(two_buckets(), 0, 3, every, 1, acquired));
    CHECK(three.gathers == 7); // 4 * 0.25 + 6144 / 1024
    CHECK(three.reductions == 3.5);
    CHECK(three.publishes == 0);
    CHECK(three.total() == 10.7578125);
}

TEST_CASE("Latency and bandwidth are fitted to two measurements") {
    // 3 * 0.25 s, and 1024 or 4096 B at 1024 B/s.
    NetworkLevel const level = fit_network_level(4, {1024, 1.75}, {4096, 4.75});
    CHECK(level.latency_seconds == 0.25);
    CHECK(level.bytes_per_second == 1024);
    // 3072 B take 6 s, so 1024 B would take 2 s and not 1 s.
    NetworkLevel const without = fit_network_level(4, {1024, 1}, {4096, 7});
    CHECK(without.latency_seconds == 0);
    CHECK(without.bytes_per_second == 512);
}

TEST_CASE("Arguments out of range are refused by name") {
    CHECK_THROWS_WITH(CommunicationModel({-1, 1024}), contains_text("latency_seconds"));
    CHECK_THROWS_AS(CommunicationModel({infinity, 1024}), InvalidArgument);
    CHECK_THROWS_AS(CommunicationModel({not_a_number, 1024}), InvalidArgument);
    CHECK_THROWS_WITH(CommunicationModel({0, 0}), contains_text("bytes_per_second"));
    CHECK_THROWS_AS(CommunicationModel({0, infinity}), InvalidArgument);
    CHECK_THROWS_WITH(CommunicationModel(slow, {0, not_a_number}, 2), contains_text("'between'"));
    CHECK_THROWS_WITH(CommunicationModel({0, -1}, slow, 2), contains_text("'inside'"));
    CHECK_THROWS_WITH(CommunicationModel(slow, slow, 0), contains_text("'ranks_per_host' is 0"));
    CHECK_THROWS_AS(CommunicationModel(slow, slow, 2, static_cast<CollectiveAlgorithm>(3)),
                    InvalidArgument);
    CommunicationModel const model(slow, slower, 4);
    CHECK_THROWS_WITH(model.collective_seconds(10, {}),
                      "zero: 10 ranks do not fill hosts of 4 ranks; the model needs as many ranks "
                      "on every host.");
    CHECK_THROWS_AS(model.control_seconds(0, {}), InvalidArgument);
    CHECK_NOTHROW(model.collective_seconds(3, {}));

    CHECK_THROWS_AS(fit_network_level(1, {1024, 1}, {4096, 2}), InvalidArgument);
    CHECK_THROWS_AS(fit_network_level(2, {4096, 1}, {1024, 2}), InvalidArgument);
    CHECK_THROWS_AS(fit_network_level(2, {1024, 2}, {4096, 2}), InvalidArgument);
    CHECK_THROWS_AS(fit_network_level(2, {1024, 2}, {4096, infinity}), InvalidArgument);

    auto const layout = two_buckets();
    CHECK_THROWS_WITH(count_step_communication(layout, 0, 4, every, 1, {}),
                      "zero: there is no stage 4; stages are 0 to 3.");
    CHECK_THROWS_AS(count_step_communication(layout, 0, -1, every, 1, {}), InvalidArgument);
    CHECK_THROWS_AS(count_step_communication(layout, 2, 1, every, 1, {}), InvalidArgument);
    CHECK_THROWS_AS(count_step_communication(layout, 0, 1, every, 0, {}), InvalidArgument);
    std::size_t const acquired[] = {0, 2};
    CHECK_THROWS_WITH(count_step_communication(layout, 0, 3, every, 1, acquired),
                      "zero: there is no unit 2; the layout has 2 units, numbered from 0.");
}

} // namespace zero::test::communication_model_test
