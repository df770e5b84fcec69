#include "figures.hpp"
#include "support/catch.hpp"

using namespace zero::test;

namespace {

FigureTable table() {
    return FigureTable::parse("# instructions\ntolerance 5\nupdate/avx2 4000\ncast/avx2 1000\n");
}

} // namespace

TEST_CASE("A table is written as it was read") {
    CHECK(table().tolerance == 5);
    CHECK(table().figures == Figures{{"cast/avx2", 1000}, {"update/avx2", 4000}});
    CHECK(table().text() == "# instructions\ntolerance 5\ncast/avx2 1000\nupdate/avx2 4000\n");
    CHECK(FigureTable::parse(table().text()).text() == table().text());
    CHECK(FigureTable::parse("tolerance 0\nsizeof a handle 24\n").figures
          == Figures{{"sizeof a handle", 24}});
}

TEST_CASE("Figures within five percent of the table pass, on either side") {
    CHECK(complaints(table(), {{"update/avx2", 4000}, {"cast/avx2", 1000}}).empty());
    CHECK(complaints(table(), {{"update/avx2", 4200}, {"cast/avx2", 950}}).empty());
}

TEST_CASE("A figure that is more than five percent above the table fails and names the loop") {
    auto const found = complaints(table(), {{"update/avx2", 4201}, {"cast/avx2", 1000}});
    REQUIRE(found.size() == 1);
    CHECK_THAT(found[0], contains_text("update/avx2: 4201 where the table has 4000, more than 5 "
                                       "percent above: it became more expensive"));
}

TEST_CASE("A figure that is more than five percent below the table also fails") {
    auto const found = complaints(table(), {{"update/avx2", 4000}, {"cast/avx2", 949}});
    REQUIRE(found.size() == 1);
    CHECK_THAT(found[0], contains_text("cast/avx2: 949 where the table has 1000, more than 5 "
                                       "percent below: it became cheaper"));
}

TEST_CASE("With a tolerance of zero a difference of one unit fails") {
    auto const exact = FigureTable::parse("tolerance 0\nhandle 24\n");
    CHECK(complaints(exact, {{"handle", 24}}).empty());
    CHECK(complaints(exact, {{"handle", 25}}).size() == 1);
    CHECK(complaints(exact, {{"handle", 23}}).size() == 1);
}

TEST_CASE("Figures missing from the table or from the measurement fail, unless this machine cannot "
          "measure them") {
    CHECK_THAT(
        complaints(table(), {{"update/avx2", 4000}, {"cast/avx2", 1000}, {"sum/avx2", 7}}).at(0),
        contains_text("sum/avx2: 7, and the table has no such line"));
    CHECK_THAT(complaints(table(), {{"update/avx2", 4000}}).at(0),
               contains_text("cast/avx2: the table has 1000, but it was not measured"));
    CHECK(complaints(table(), {{"update/avx2", 4000}}, [](std::string const& name) {
              return name != "cast/avx2";
          }).empty());
}

TEST_CASE("A verdict on a file names each figure and says how to update the table") {
    auto const said = verdict(table_path("sizes"), {{"no such thing", 1}},
                              [](std::string const&) { return false; });
    CHECK_THAT(said, contains_text("no such thing: 1, and the table has no such line\nIf this is "
                                   "meant, run the test with ZERO_GUARD_UPDATE=1"));
    CHECK_THAT(said, contains_text("tests/guard/tables/sizes.txt"));
}
