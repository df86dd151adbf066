// Draws a dashboard with Grafana's own published components: time series, stats, bar gauges, tables and the panel frame.
// Gauges, heatmaps and state timelines are plugins that are not published: they are drawn here in a plain way.
import React from 'react';
import { createRoot } from 'react-dom/client';
import {
  applyFieldOverrides, cacheFieldDisplayNames, createTheme, EventBusSrv, dateTime, FieldType, getFieldDisplayValues, standardFieldConfigEditorRegistry,
  standardTransformers, standardTransformersRegistry, ThemeContext, toDataFrame, transformDataFrame, VizOrientation,
} from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, PanelContextProvider, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

const theme = createTheme({ colors: { mode: 'dark' } });
const OPTIONS = ['unit', 'min', 'max', 'decimals', 'thresholds', 'mappings', 'color', 'links', 'custom.lineStyle',
  'custom.fillOpacity', 'custom.stacking', 'custom.cellOptions', 'custom.width', 'custom.minWidth', 'custom.align'];
const registry = OPTIONS.map((id) => ({
  id, name: id, path: id.replace('custom.', ''), isCustom: id.startsWith('custom.'), process: (value) => value,
  shouldApply: () => true, settings: {}, editor: () => null, override: () => null,
}));
standardFieldConfigEditorRegistry.setInit(() => registry);
standardTransformersRegistry.setInit(() =>
  [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer,
    standardTransformers.filterFieldsByNameTransformer].map((each) => ({ id: each.id, name: each.name, transformation: () => Promise.resolve(each), editor: () => null })));

const number = (text) => (text === 'NaN' ? null : Number(text));
const legendOf = (target, labels) =>
  target.legendFormat ? target.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => labels[label] ?? '') : undefined;

function seriesFrames(panel, results) {
  return panel.targets.flatMap((target) =>
    (results[target.refId] ?? []).map(({ metric, values, value }) => {
      const samples = values ?? [value];
      return toDataFrame({
        refId: target.refId,
        fields: [
          { name: 'Time', type: FieldType.time, values: samples.map(([at]) => at * 1000) },
          { name: 'Value', type: FieldType.number, values: samples.map(([, each]) => number(each)), labels: metric,
            config: { displayNameFromDS: legendOf(target, metric) } },
        ],
      });
    }));
}

function tableFrames(panel, results) {
  return panel.targets.map((target) => {
    const found = results[target.refId] ?? [];
    const labels = [...new Set(found.flatMap(({ metric }) => Object.keys(metric)))];
    return toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: found.map(({ value }) => value[0] * 1000) },
        ...labels.map((name) => ({ name, type: FieldType.string, values: found.map(({ metric }) => metric[name] ?? '') })),
        { name: panel.targets.length > 1 ? `Value #${target.refId}` : 'Value', type: FieldType.number,
          values: found.map(({ value }) => number(value[1])) },
      ],
    });
  });
}

function overridden(panel, frames) {
  const made = applyFieldOverrides({ data: frames, fieldConfig: panel.fieldConfig, replaceVariables: (text) => text, theme, timeZone: 'utc' });
  for (const frame of made) {
    for (const field of frame.fields) {
      field.config.custom = { ...panel.fieldConfig.defaults.custom, ...field.config.custom };
    }
  }
  cacheFieldDisplayNames(made);
  return made;
}

function Rows({ frames, width, height, viridis }) {
  const shown = frames.map((frame) => ({ name: frame.fields[1].config.displayNameFromDS ?? '', time: frame.fields[0].values, field: frame.fields[1] }));
  const [from, to] = [Math.min(...shown.flatMap((row) => row.time)), Math.max(...shown.flatMap((row) => row.time))];
  const names = Math.max(120, Math.min(width / 2, 6 + 5.6 * Math.max(...shown.map(({ name }) => name.length))));
  const tall = Math.max(4, Math.min(28, (height - 22) / shown.length));
  const colour = (row, value) => (viridis
    ? `hsl(${280 - 220 * Math.min(1, value)}, 65%, ${20 + 40 * Math.min(1, value)}%)` : row.field.display(value).color);
  return (
    <svg width={width} height={height} style={{ fontSize: 10, fill: theme.colors.text.secondary }}>
      {shown.map((row, y) => row.time.map((at, x) => (
        <rect key={`${y}.${x}`} x={names + ((at - from) / (to - from || 1)) * (width - names - 10)} y={y * tall} height={tall - 2}
          width={(width - names - 10) / Math.max(20, row.time.length) + 0.5} fill={colour(row, row.field.values[x])} />)))}
      {shown.map((row, y) => tall > 9 && <text key={y} x={2} y={y * tall + tall / 2 + 2}>{row.name}</text>)}
    </svg>
  );
}

function Viz({ panel, results, width, height, range }) {
  if (panel.type === 'table') {
    const [frame, setFrame] = React.useState(null);
    React.useEffect(() => {
      const sub = transformDataFrame(panel.transformations, tableFrames(panel, results)).subscribe((frames) =>
        setFrame(overridden(panel, frames)[0] ?? null));
      return () => sub.unsubscribe();
    }, []);
    if (!frame || !frame.length) return <div style={{ padding: 12, color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue ?? 'No data'}</div>;
    const sortBy = (panel.options.sortBy ?? []).map(({ displayName, desc }) => ({ displayName, desc }));
    return <TableNG data={frame} width={width} height={height} cellHeight="sm" sortBy={sortBy} fieldConfig={panel.fieldConfig} />;
  }
  const frames = overridden(panel, seriesFrames(panel, results));
  if (!frames.length) return <div style={{ padding: 12, color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue ?? 'No data'}</div>;
  if (panel.type === 'timeseries') {
    return <TimeSeries frames={frames} width={width} height={height} timeRange={range} timeZone="utc" legend={panel.options.legend} options={{}} />;
  }
  if (panel.type === 'heatmap' || panel.type === 'state-timeline') {
    return <Rows frames={frames} width={width} height={height} viridis={panel.type === 'heatmap'} />;
  }
  const values = () => getFieldDisplayValues({
    data: frames, fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables: (text) => text,
    theme, timeZone: 'utc', sparkline: panel.options.graphMode === 'area',
  });
  const bars = panel.type === 'bargauge';
  return (
    <VizRepeater getValues={values} source={frames} renderCounter={0} width={width} height={height} autoGrid
      orientation={bars ? VizOrientation.Horizontal : VizOrientation.Auto} minVizHeight={bars ? 12 : 0} maxVizHeight={panel.options.maxVizHeight}
      renderValue={({ value, width, height, count, orientation }) => (bars ? (
        <BarGauge value={value.display} field={value.field} display={value.view?.getFieldDisplayProcessor(value.colIndex)} width={width} height={height}
          orientation={VizOrientation.Horizontal} displayMode={panel.options.displayMode} showUnfilled theme={theme} itemSpacing={8}
          valueDisplayMode="color" />
      ) : (
        <BigValue value={value.display} width={width} height={height} count={count} theme={theme} sparkline={value.sparkline}
          colorMode={panel.options.colorMode ?? 'value'} graphMode={panel.options.graphMode ?? 'none'} justifyMode="auto"
          textMode={count > 1 ? 'value_and_name' : 'value'} />
      ))} />
  );
}

function Dashboard({ board, results, chosen }) {
  const column = 1600 / 24, row = 38;
  const stamps = Object.values(results).flatMap((each) => Object.values(each).flat().flatMap(({ values }) => (values ?? []).map(([at]) => at * 1000)));
  const [from, to] = stamps.length ? [stamps.reduce((a, b) => Math.min(a, b)), stamps.reduce((a, b) => Math.max(a, b))] : [0, 1];
  const range = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
  const bottom = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const context = { eventsScope: 'page', eventBus: new EventBusSrv(), onSeriesColorChange() {}, onToggleSeriesVisibility() {}, canAddAnnotations: () => false };
  return (
    <div style={{ position: 'relative', width: 1600, height: bottom * row + 60, background: theme.colors.background.canvas }}>
      <h3 style={{ padding: '12px 8px', color: theme.colors.text.primary }}>{board.title}
        {chosen.map((each) => <span key={each} style={{ marginLeft: 24, padding: '4px 10px', fontSize: 14, border: `1px solid ${theme.colors.border.medium}` }}>{each}</span>)}
      </h3>
      {board.panels.map((panel) => {
        const { x, y, w, h } = panel.gridPos;
        const box = { position: 'absolute', left: x * column + 4, top: 50 + y * row, width: w * column - 8, height: h * row - 8 };
        if (panel.type === 'row') return <div key={panel.id} style={{ ...box, color: theme.colors.text.primary, fontWeight: 500 }}>{panel.collapsed ? '▸' : '▾'} {panel.title}</div>;
        return (
          <div key={panel.id} style={box} data-panel={panel.title}>
            <PanelContextProvider value={context}>
              <PanelChrome title={panel.title} description={panel.description} width={box.width} height={box.height}>
                {(width, height) => <Viz panel={panel} results={results[panel.id] ?? {}} width={width} height={height} range={range} />}
              </PanelChrome>
            </PanelContextProvider>
          </div>
        );
      })}
    </div>
  );
}

const name = new URLSearchParams(location.search).get('board');
const { board, results, chosen } = await (await fetch(`/data/${name}`)).json();
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}><GlobalStyles /><Dashboard board={board} results={results} chosen={chosen} /></ThemeContext.Provider>);
const tables = board.panels.filter(({ id, type }) => type === 'table' && Object.values(results[id] ?? {}).some((each) => each.length)).length;
const look = () => {
  const drawn = [...document.querySelectorAll('[role=grid]')].filter((grid) => grid.querySelector('[role=gridcell]')?.innerText);
  if (drawn.length < tables) setTimeout(look, 100);
  else setTimeout(() => { window.done = true; }, 4000);
};
look();
