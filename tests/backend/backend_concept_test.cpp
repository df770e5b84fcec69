#include "support/archetype.hpp"
#include "support/catch.hpp"

#include <zero/host/host_backend.hpp>

using namespace zero;
using test::Archetype;

namespace {

struct Point {};
struct Stream {};
struct Unmovable {
    Unmovable() = default;
    Unmovable(Unmovable const&) = delete;
    Unmovable& operator=(Unmovable const&) = delete;
};
struct Ordinary { // no default
    explicit Ordinary(int);
};

template <class Q = int, class E = Point>
struct Types {
    using Queue = Q;
    using Event = E;
    using OwnedQueue = Stream;
};
struct Handle {
    static int handle(Stream&);
};
struct Compute {
    static int default_compute_queue();
};
struct Memory {
    static MemoryResource& default_memory();
};
struct Record {
    static Point record(int);
};
struct Wait {
    static void wait(int, Point const&, Fence);
};
struct Synchronize {
    static void synchronise(Point const&);
};
struct Rethrow {
    static void rethrow_failure(int);
};
struct Copy {
    static void copy_bytes(int, void*, void const*, std::size_t);
};
struct Elements {
    template <class T>
    static void fill(int, T*, std::size_t, T);
    template <class To, class From>
    static void convert(int, To*, From const*, std::size_t, float);
    template <class To, class From>
    static void accumulate(int, To*, From const*, std::size_t);
};
struct Sums {
    template <class T>
    static void sum_ranks(int, T*, T const* const*, int, std::size_t);
};
struct Integers {
    static void sum_integers(int, std::int64_t*, std::int64_t const* const*, int, std::size_t);
    static void min_integers(int, std::int64_t*, std::int64_t const* const*, int, std::size_t);
};

struct FencelessWait {
    static void wait(int, Point const&);
};
struct NumberRecord {
    static int record(int);
};
struct MemberCopy {
    void copy_bytes(int, void*, void const*, std::size_t);
};
struct OnlySums {
    static void sum_integers(int, std::int64_t*, std::int64_t const* const*, int, std::size_t);
};

template <class... Parts>
constexpr bool is_backend = Backend<Archetype<Parts...>>;

} // namespace

TEST_CASE("The host backend models Backend, and so does a type that derives from it and replaces "
          "one function") {
    struct Derived : HostBackend {
        static void wait(Queue, Event const&, Fence) {}
    };
    STATIC_REQUIRE(Backend<HostBackend>);
    STATIC_REQUIRE(diagnose_backend<HostBackend>());
    STATIC_REQUIRE(Backend<Derived>);
}

TEST_CASE("A backend consists of its types and its operations") {
    STATIC_REQUIRE(is_backend<Types<>, Handle, Compute, Memory, Record, Wait, Synchronize, Rethrow,
                              Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE(
        diagnose_backend<Archetype<Types<>, Handle, Compute, Memory, Record, Wait, Synchronize,
                                   Rethrow, Copy, Elements, Sums, Integers>>());
}

TEST_CASE("A type that lacks one requirement is not a backend") {
    STATIC_REQUIRE_FALSE(is_backend<Handle, Compute, Memory, Record, Wait, Synchronize, Rethrow,
                                    Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Compute, Memory, Record, Wait, Synchronize, Rethrow,
                                    Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Memory, Record, Wait, Synchronize, Rethrow,
                                    Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Record, Wait, Synchronize, Rethrow,
                                    Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Wait, Synchronize, Rethrow,
                                    Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, Synchronize, Rethrow,
                                    Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, Wait, Rethrow, Copy,
                                    Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, Wait, Synchronize,
                                    Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, Wait, Synchronize,
                                    Rethrow, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, Wait, Synchronize,
                                    Rethrow, Copy, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, Wait, Synchronize,
                                    Rethrow, Copy, Elements, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, Wait, Synchronize,
                                    Rethrow, Copy, Elements, Sums>);
}

TEST_CASE("A type with one wrong requirement is not a backend") {
    STATIC_REQUIRE_FALSE(is_backend<Types<int, Unmovable>, Handle, Compute, Memory, Record, Wait,
                                    Synchronize, Rethrow, Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<int, Ordinary>, Handle, Compute, Memory, Record, Wait,
                                    Synchronize, Rethrow, Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<Unmovable>, Handle, Compute, Memory, Record, Wait,
                                    Synchronize, Rethrow, Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, NumberRecord, Wait,
                                    Synchronize, Rethrow, Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, FencelessWait,
                                    Synchronize, Rethrow, Copy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, Wait, Synchronize,
                                    Rethrow, MemberCopy, Elements, Sums, Integers>);
    STATIC_REQUIRE_FALSE(is_backend<Types<>, Handle, Compute, Memory, Record, Wait, Synchronize,
                                    Rethrow, Copy, Elements, Sums, OnlySums>);
}
