#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/temporary_folder.hpp"

#include <zero/core/error.hpp>
#include <zero/core/timeline.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace zero::test::timeline_test {

namespace {

TimelineSpan& add(Timeline& timeline, TimelinePhase phase, char const* what, std::int64_t begin,
                  std::int64_t end, void const* queue) {
    TimelineSpan* const span = timeline.open(phase, what, 7, queue);
    REQUIRE(span != nullptr);
    span->begin = begin;
    span->end = end;
    return *span;
}

TimelineSpan& add_collective(Timeline& timeline, std::int64_t begin, std::int64_t end,
                             void const* queue) {
    TimelineSpan& span =
        add(timeline, TimelinePhase::reduce, "gradients of bucket", begin, end, queue);
    span.is_collective = true;
    span.bytes = 4096;
    return span;
}

std::string text_in(std::filesystem::path const& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool is_close(double a, double b) {
    return a - b < 1e-12 && b - a < 1e-12;
}

} // namespace

TEST_CASE("A summary counts each moment of communication once, and as exposed where the model "
          "stands still") {
    int communication = 0;
    int compute = 0;
    Timeline timeline;
    add_collective(timeline, 100, 300, &communication);
    add_collective(timeline, 200, 400, &communication); // together 300 ns
    add(timeline, TimelinePhase::wait, "weights_gathered", 350, 900, &compute).stops_model = true;
    add(timeline, TimelinePhase::wait, "gradients_written", 0, 320, &communication);
    auto summary = timeline.summary();
    CHECK(summary.spans == 4);
    CHECK(is_close(summary.communication, 300e-9));
    CHECK(is_close(summary.exposed, 50e-9));
    CHECK(is_close(summary.hidden_share(), 250.0 / 300.0));
    CHECK(is_close(summary.seconds[static_cast<std::size_t>(TimelinePhase::reduce)], 400e-9));
    CHECK(is_close(summary.seconds[static_cast<std::size_t>(TimelinePhase::wait)], 870e-9));

    TimelineSpan& call = add_collective(timeline, 1000, 1100, &communication);
    call.called = 980;
    call.returned = 1040;
    CHECK(is_close(timeline.summary().exposed, 50e-9));
    call.call_stops_model = true;
    CHECK(is_close(timeline.summary().exposed, 90e-9));
    CHECK(Timeline().summary().hidden_share() == 1.0);
}

TEST_CASE("A timeline drops what it has no room for and says how much, and forgets what it is told "
          "to") {
    Timeline timeline(3, 2);
    CHECK(timeline.rank() == 3);
    int queue = 0;
    for (int span = 0; span < 5; ++span) {
        TimelineSpan* const opened = timeline.open(TimelinePhase::copy, "fill", 0, &queue);
        CHECK((opened != nullptr) == (span < 2));
    }
    CHECK(timeline.size() == 2);
    CHECK(timeline.summary().dropped == 3);
    CHECK(timeline.summary().spans == 0); // none has an end
    timeline.clear();
    CHECK(timeline.size() == 0);
    CHECK(timeline.summary().dropped == 0);
    timeline.set_recording(false);
    CHECK(timeline.open(TimelinePhase::copy, "fill", 0, &queue) == nullptr);
    CHECK(timeline.size() == 0);
}

TEST_CASE("A thread records where its innermost scope says, and other threads do not") {
    Timeline outer;
    Timeline inner;
    CHECK(Timeline::of_thread() == nullptr);
    {
        TimelineScope const first(&outer);
        {
            TimelineScope const second(&inner);
            CHECK(Timeline::of_thread() == &inner);
            Timeline* of_other = &inner;
            std::thread([&] { of_other = Timeline::of_thread(); }).join();
            CHECK(of_other == nullptr);
        }
        CHECK(Timeline::of_thread() == &outer);
    }
    CHECK(Timeline::of_thread() == nullptr);
}

TEST_CASE("A trace has an event for each span, in microseconds from the first one, and a track for "
          "each queue") {
    TemporaryFolder const folder;
    int communication = 0;
    int compute = 0;
    Timeline timeline(2);
    TimelineSpan& sum = add_collective(timeline, 1'005'000, 1'007'500, &communication);
    std::string const name = "a \"quoted\\ name";
    std::copy(name.begin(), name.end(), sum.parameter.begin());
    sum.called = 1'000'000;
    sum.returned = 1'002'000;
    add(timeline, TimelinePhase::work, "forward", 1'001'000, 1'003'000, &compute);
    add(timeline, TimelinePhase::wait, "short", 1'001'000, 1'001'999, &compute);
    add(timeline, TimelinePhase::update, "open", 1'001'000, TimelineSpan::unset, &compute);
    std::array<Timeline*, 1> const timelines{&timeline};
    write_timelines((folder / "trace.json").string(), timelines);
    std::string const sum_begin =
        R"({"ph":"X","name":"gradients of bucket 7","cat":"reduce","pid":2,)";
    std::string const sum_end = R"("args":{"bytes":4096,"parameter":"a \"quoted\\ name"}},)";
    CHECK(text_in(folder / "trace.json")
          == R"({"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","name":"process_name","pid":2,"tid":0,"args":{"name":"rank 2"}},
{"ph":"M","name":"thread_name","pid":2,"tid":0,"args":{"name":"host"}},
{"ph":"M","name":"thread_name","pid":2,"tid":1,"args":{"name":"communication queue"}},
{"ph":"M","name":"thread_name","pid":2,"tid":2,"args":{"name":"compute queue"}},
)" + sum_begin + R"("tid":1,"ts":5.000,"dur":2.500,)"
                 + sum_end + R"(
)" + sum_begin + R"("tid":0,"ts":0.000,"dur":2.000,)"
                 + sum_end + R"(
{"ph":"X","name":"forward 7","cat":"work","pid":2,"tid":2,"ts":1.000,"dur":2.000,"args":{}}
]}
)");
    CHECK_THROWS_AS(write_timelines((folder / "none" / "trace.json").string(), timelines), Error);
}

TEST_CASE("Spans keep the bucket that their thread works on, if the timeline is made for it, and a "
          "trace shows it") {
    TemporaryFolder const folder;
    int queue = 0;
    TimelineBucket bucket;
    bucket.number = 5;
    std::string const units = "layer \"1\" to layer 2";
    std::copy(units.begin(), units.end(), bucket.units.begin());
    std::string texts[2];
    for (bool const has_buckets : {false, true}) {
        Timeline timeline(0, 16, {.buckets = has_buckets});
        CHECK(timeline.has_buckets() == has_buckets);
        add(timeline, TimelinePhase::copy, "before", 1'000'000, 1'001'000, &queue);
        CHECK(Timeline::set_bucket_of_thread(&bucket) == nullptr);
        add_collective(timeline, 1'001'000, 1'002'000, &queue);
        add(timeline, TimelinePhase::reduce, "convert", 1'002'000, 1'003'000, &queue);
        TimelineBucket const* of_other = &bucket;
        std::thread([&] { of_other = Timeline::set_bucket_of_thread(nullptr); }).join();
        CHECK(of_other == nullptr);
        CHECK(Timeline::set_bucket_of_thread(nullptr) == &bucket);
        add(timeline, TimelinePhase::copy, "after", 1'003'000, 1'004'000, &queue);
        for (std::size_t const position : {0U, 3U}) {
            CHECK(timeline.bucket_of(position) == nullptr);
        }
        for (std::size_t const position : {1U, 2U}) {
            TimelineBucket const* const found = timeline.bucket_of(position);
            REQUIRE((found != nullptr) == has_buckets);
            CHECK((found == nullptr || (found->number == 5 && found->units.data() == units)));
        }
        std::array<Timeline*, 1> const timelines{&timeline};
        write_timelines((folder / "trace.json").string(), timelines);
        texts[has_buckets ? 1 : 0] = text_in(folder / "trace.json");
        timeline.clear();
        add(timeline, TimelinePhase::copy, "again", 1, 2, &queue);
        add(timeline, TimelinePhase::copy, "again", 2, 3, &queue);
        CHECK(timeline.bucket_of(1) == nullptr);
    }
    std::string const shown = R"("bucket":5,"units":"layer \"1\" to layer 2")";
    CHECK(texts[0].find("\"bucket\"") == std::string::npos);
    CHECK(texts[1].find(R"("args":{"bytes":4096,"parameter":"",)" + shown + "}}")
          != std::string::npos);
    CHECK(
        texts[1].find(R"("name":"convert 7","cat":"reduce","pid":0,"tid":1,"ts":2.000,"dur":1.000,)"
                      R"("args":{)"
                      + shown + "}}")
        != std::string::npos);
    for (auto at = texts[1].find(shown); at != std::string::npos; at = texts[1].find(shown)) {
        bool const follows = texts[1][at - 1] == ',';
        texts[1].erase(at - (follows ? 1 : 0), shown.size() + (follows ? 1 : 0));
    }
    CHECK(texts[1] == texts[0]);
}

} // namespace zero::test::timeline_test
