// Ranks that call different collectives get an error on every rank that names both calls.

#include "report.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/host/threaded_queue.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace zero::test::mismatch_test {

using test::contains;
using test::Report;

namespace {

constexpr int world = 3;
constexpr std::array<std::size_t, 4> cuts{0, 4, 8, 12};
constexpr std::array<std::size_t, 4> other_cuts{0, 2, 8, 12};
constexpr std::array<std::size_t, 4> longer_cuts{0, 4, 8, 16};

struct Case {
    char const* name;
    char const* usual;   ///< text in the message about rank 0
    char const* unusual; ///< text in the message about the rank that differs
};

constexpr std::array<Case, 12> cases{
    {{"operation", "all-reduce of 12 float32 ('usual 1'",
      "reduce-scatter of 12 float32 ('usual 1'"},
     {"type", "all-reduce of 12 float32", "all-reduce of 12 bfloat16"},
     {"count", "all-reduce of 12 float32", "all-reduce of 16 float32"},
     {"cuts", "cuts ", "cuts "},
     {"text of the tag", "'usual 1'", "'unusual 1'"},
     {"index of the tag", "'usual 1'", "'usual 2'"},
     {"root", "root 0", "root 1"},
     {"reduction", "sum", "minimum"},
     {"count of integers", "of 4 int64", "of 0 int64"},
     {"operation beside an exchange", "exchange of 12 float32", "reduce-scatter of 12 float32"},
     {"cuts of an exchange", "cuts ", "cuts "},
     {"tag of an exchange", "'usual 1'", "'usual 2'"}}};

/// Calls collective number `index` of the list, in the usual or the unusual way.
template <class Communicator>
void call(Communicator& c, std::size_t index, bool is_usual, host::Queue& queue) {
    std::array<float, 16> values{};
    std::array<bfloat16, 16> others{};
    std::array<std::int64_t, 4> integers{};
    float* const in_place = values.data() + cuts[static_cast<std::size_t>(c.rank())];
    CollectiveTag const tag{"usual", 1};
    try {
        if (index == 6) {
            c.broadcast(values.data(), 12, is_usual ? 0 : 1, &queue, tag);
        } else if (index == 7) {
            c.all_reduce_integers(integers.data(), 4,
                                  is_usual ? IntegerReduction::sum : IntegerReduction::min, &queue,
                                  tag);
        } else if (index == 8) {
            c.all_reduce_integers(integers.data(), is_usual ? 4 : 0, IntegerReduction::sum, &queue,
                                  tag);
        } else if (index == 9 && !is_usual) {
            c.reduce_scatter(static_cast<float const*>(values.data()), in_place, cuts, &queue, tag);
        } else if (index >= 9) {
            std::array<float, 18> pieces{};
            c.exchange(static_cast<float const*>(values.data()), pieces.data(),
                       is_usual || index != 10 ? cuts : other_cuts, &queue,
                       is_usual || index != 11 ? tag : CollectiveTag{"usual", 2});
            queue.synchronise(); // before the pieces are gone
        } else if (index == 0 && !is_usual) {
            c.reduce_scatter(static_cast<float const*>(values.data()), in_place, cuts, &queue, tag);
        } else if (index == 1 && !is_usual) {
            c.all_reduce(static_cast<bfloat16 const*>(others.data()), others.data(), cuts, &queue,
                         tag);
        } else {
            auto const& chosen = is_usual || index > 3 ? cuts
                                 : index == 2          ? longer_cuts
                                                       : other_cuts;
            CollectiveTag const chosen_tag =
                is_usual ? tag
                         : CollectiveTag{index == 4 ? "unusual" : "usual", index == 5 ? 2U : 1U};
            c.all_reduce(static_cast<float const*>(values.data()), values.data(), chosen, &queue,
                         chosen_tag);
        }
    } catch (...) {
        queue.synchronise();
        throw;
    }
    queue.synchronise();
}

template <class Decorate>
void check_mismatches(Decorate const& decorate) {
    for (std::size_t index = 0; index < cases.size(); ++index) {
        for (int odd = 0; odd < world; ++odd) {
            Report report;
            INFO(cases[index].name << " differs on rank " << odd);
            CHECK_THROWS_AS(
                run_ranks(world, {.time_out = std::chrono::seconds(60)},
                          [&](LoopbackCommunicator& loopback) {
                              decorate(loopback, [&](auto& communicator) {
                                  host::ThreadedQueue queue;
                                  call(communicator, index, true, queue);
                                  try {
                                      call(communicator, index, communicator.rank() != odd, queue);
                                      report.expect(
                                          false,
                                          "a collective that the ranks disagree about returned");
                                  } catch (CollectiveMismatch const& error) {
                                      std::string const text = error.what();
                                      // Rank 0 is one side of the message; the other is the first
                                      // that differs from it.
                                      std::string const other =
                                          odd == 0 ? "rank 1 called"
                                                   : "rank " + std::to_string(odd) + " called";
                                      report.expect(contains(text, "rank 0 called")
                                                        && contains(text, other)
                                                        && contains(text, cases[index].usual)
                                                        && contains(text, cases[index].unusual),
                                                    text);
                                  }
                                  std::string const after = test::message_of<Aborted>(
                                      [&] { call(communicator, index, true, queue); });
                                  report.expect(contains(after, "rank 0 called"),
                                                "after a mismatch: " + after);
                                  throw CollectiveMismatch("for run_ranks");
                              });
                          }),
                CollectiveMismatch);
            report.check();
        }
    }
}

} // namespace

TEST_CASE("Loopback compares operation, type, count, cuts, tag, root and reduction") {
    check_mismatches([](LoopbackCommunicator& loopback, auto const& body) { body(loopback); });
}

TEST_CASE("Checked finds the same differences, before the inner communicator sees the call") {
    check_mismatches([](LoopbackCommunicator& loopback, auto const& body) {
        Recording<LoopbackCommunicator> recording(loopback);
        Checked<Recording<LoopbackCommunicator>> checked(recording);
        try {
            body(checked);
        } catch (CollectiveMismatch const&) {
            auto const& seen = recording.recorded();
            std::uint64_t const calls =
                seen[CollectiveKind::all_reduce].calls + seen[CollectiveKind::reduce_scatter].calls
                + seen[CollectiveKind::broadcast].calls + seen[CollectiveKind::integers].calls
                + seen[CollectiveKind::exchange].calls;
            if (calls != 1 || seen[CollectiveKind::all_gather].calls != 3) {
                throw std::runtime_error("the inner communicator saw " + std::to_string(calls)
                                         + " calls");
            }
            throw;
        }
    });
}

TEST_CASE("The words that ranks exchange keep 32 characters of a text and 96 of a context") {
    std::string letters(100, ' ');
    for (std::size_t letter = 0; letter < letters.size(); ++letter) {
        letters[letter] = static_cast<char>('a' + letter % 26);
    }
    using detail::CallSignature;
    CollectiveTag const tag{letters.data(), 7, letters.data() + 1, letters.data() + 2};
    auto const words = CallSignature::of({CollectiveKind::broadcast, DType::float32, 12, 3, tag});
    CHECK(CallSignature::text_of(words.data())
          == "broadcast of 12 float32 ('" + letters.substr(0, 32) + " 7', first parameter '"
                 + letters.substr(1, 32) + "', for " + letters.substr(2, 96) + ", root 3)");
}

TEST_CASE("The words that ranks exchange tell engines apart, and a difference names them") {
    using detail::CallSignature;
    auto const words_of = [](std::uint32_t engine) {
        CollectiveTag const tag{"sum", 7, "", "", CollectivePurpose::reduce, engine};
        return CallSignature::of({CollectiveKind::integers, DType::int64, 2, 0, tag});
    };
    auto const first = words_of(4), second = words_of(~std::uint32_t{0});
    std::vector<std::uint64_t> both(first.begin(), first.end());
    both.insert(both.end(), first.begin(), first.end());
    CHECK(CallSignature::first_difference(both).empty());
    std::copy(second.begin(), second.end(),
              both.begin() + static_cast<std::ptrdiff_t>(first.size()));
    std::string const sum = "all-reduce of integers of 2 int64 ('sum 7', sum) of engine ";
    CHECK(CallSignature::first_difference(both)
          == "rank 0 called " + sum + "4, rank 1 called " + sum + "4294967295");
    CHECK(CallSignature::difference(3, first.data(), 5, words_of(0).data())
          == "rank 3 called " + sum
                 + "4, rank 5 called all-reduce of integers of 2 int64 ('sum 7', sum)");
}

TEST_CASE("Words that no call has are described as well") {
    detail::CallSignature::Words words{};
    words.fill(~std::uint64_t{0}); // what a transport delivers that does not wait for its peers
    CHECK(detail::CallSignature::text_of(words.data())
              .rfind("unknown of 18446744073709551615 unknown (", 0)
          == 0);
}

TEST_CASE("What a tag has for messages only is not compared") {
    auto const sum = [](auto& communicator) {
        float values[2] = {1.0F, 2.0F};
        std::size_t const of_two[] = {0, 1, 2};
        bool const is_first = communicator.rank() == 0;
        host::ThreadedQueue queue;
        communicator.all_reduce(
            static_cast<float const*>(values), values, of_two, &queue,
            CollectiveTag{"sums", 1, is_first ? "first" : "other", is_first ? "of rank 0" : ""});
        queue.synchronise();
        return values[1];
    };
    CHECK_NOTHROW(run_ranks(2, [&](LoopbackCommunicator& loopback) {
        Checked<LoopbackCommunicator> checked(loopback);
        if (sum(loopback) != 4.0F || sum(checked) != 4.0F) {
            throw std::runtime_error("another sum");
        }
    }));
}

} // namespace zero::test::mismatch_test
