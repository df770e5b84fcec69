# zero-plan, the program that plans memory and communication before a run (src/plan). It reads models as checkpoints do, from the headers alone, so the installed
# program needs no library beside it.

if(NOT ZERO_BUILD_PLAN)
    return()
endif()
if(NOT TARGET zero::checkpoint)
    message(STATUS "zero: zero-plan is not built, because zero::checkpoint is not defined")
    return()
endif()
add_executable(zero_plan "${CMAKE_CURRENT_LIST_DIR}/../src/plan/zero_plan.cpp")
if(ZERO_OPTIMIZE_PROGRAMS)
    zero_own_target(zero_plan)
else() # three quarters of the build time
    zero_own_target(zero_plan COMPILED)
    target_link_libraries(zero_plan PRIVATE zero::checkpoint_compiled)
endif()
target_link_libraries(zero_plan PRIVATE zero::checkpoint)
target_compile_options(zero_plan PRIVATE $<$<NOT:$<BOOL:${ZERO_OPTIMIZE_PROGRAMS}>>:-O0>)
set_target_properties(zero_plan PROPERTIES OUTPUT_NAME zero-plan)
if(ZERO_INSTALL)
    install(TARGETS zero_plan RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
