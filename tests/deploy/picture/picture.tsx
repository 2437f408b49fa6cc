/**
 * Draws a dashboard's panels with Grafana's own components: `window.draw(answers)` does it once.
 *
 * What a Grafana server has and its packages have not is done here: answers of Prometheus become data frames, the options
 * of fields are registered, and panels are laid on the dashboard's grid.
 */
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  createTheme,
  type DataFrame,
  type DataTransformerConfig,
  dateTime,
  type Field,
  FieldConfigOptionsRegistry,
  type FieldConfigSource,
  FieldType,
  getFieldDisplayValues,
  type GrafanaTheme2,
  standardTransformers,
  standardTransformersRegistry,
  ThemeContext,
  type TimeRange,
  transformDataFrame,
} from '@grafana/data';
import { BigValue, BigValueGraphMode, GlobalStyles, Icon, PanelChrome, TimeSeries } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import type { ReactNode } from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';

/** A series as Prometheus answers: `values` of a range, `value` of an instant. Times are in seconds. */
interface Series {
  metric: Record<string, string>;
  values?: Array<[number, string]>;
  value?: [number, string];
}

interface Target {
  refId: string;
  legendFormat: string;
  format: string;
  answer: Series[];
}

interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  fieldConfig: FieldConfigSource;
  options: any;
  transformations?: DataTransformerConfig[];
  targets: Target[];
}

interface Answers {
  panels: Panel[];
  /** The time shown, and between two points of a graph; in milliseconds. */
  from: number;
  to: number;
  step: number;
  width: number;
  dark: boolean;
}

const COLUMNS = 24;
const ROW_HEIGHT = 30;
const GAP = 8;
const MARGIN = 16;
const FONT_WEIGHTS = [400, 500];

const same = (value: unknown) => value;
const identity = (text: string) => text;

/** Every option that these panels set. In a server, panels register their own. */
function fieldOptions(panels: Panel[]): FieldConfigOptionsRegistry {
  const plain = new Set<string>();
  const custom = new Set<string>();
  for (const { fieldConfig } of panels) {
    Object.keys(fieldConfig.defaults).forEach((name) => plain.add(name));
    Object.keys(fieldConfig.defaults.custom ?? {}).forEach((name) => custom.add(name));
    for (const { id } of fieldConfig.overrides.flatMap(({ properties }) => properties)) {
      id.startsWith('custom.') ? custom.add(id.slice('custom.'.length)) : plain.add(id);
    }
  }
  plain.delete('custom');
  const option = (id: string, path: string, isCustom: boolean, shouldApply: (field: Field) => boolean): any => ({
    id,
    path,
    isCustom,
    name: path,
    process: same,
    shouldApply,
  });
  const counted = (field: Field) => field.type !== FieldType.time;
  const registry = new FieldConfigOptionsRegistry();
  plain.forEach((name) => registry.register(option(name, name, false, counted)));
  custom.forEach((name) => registry.register(option(`custom.${name}`, name, true, counted)));
  return registry;
}

/** JSON has no -Infinity: the first step of thresholds is null there. */
function withLowestStep(source: FieldConfigSource): FieldConfigSource {
  const copy: FieldConfigSource = structuredClone(source);
  copy.defaults.thresholds?.steps.forEach((step) => (step.value ??= -Infinity));
  return copy;
}

function legend(format: string, labels: Record<string, string>): string {
  return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name) => labels[name] ?? '');
}

const time = (values: number[], interval?: number): Field => ({
  name: 'Time',
  type: FieldType.time,
  config: { interval },
  values: values.map((seconds) => seconds * 1000),
});

/** One frame for each series. What is no number is a gap. */
function graphFrames({ refId, legendFormat, answer }: Target, step: number): DataFrame[] {
  return answer.map(({ metric, values = [] }) => ({
    refId,
    length: values.length,
    fields: [
      time(values.map(([at]) => at), step),
      {
        name: 'Value',
        type: FieldType.number,
        labels: metric,
        config: { displayNameFromDS: legend(legendFormat, metric) },
        values: values.map(([, value]) => (Number.isFinite(Number(value)) ? Number(value) : null)),
      },
    ],
  }));
}

/** One frame with all series, labels as columns. */
function tableFrame({ refId, answer }: Target, alone: boolean): DataFrame {
  const labels = [...new Set(answer.flatMap(({ metric }) => Object.keys(metric)))].sort();
  return {
    refId,
    length: answer.length,
    fields: [
      time(answer.map(({ value }) => value![0])),
      ...labels.map((name) => ({
        name,
        type: FieldType.string,
        config: {},
        values: answer.map(({ metric }) => metric[name] ?? ''),
      })),
      {
        name: alone ? 'Value' : `Value #${refId}`,
        type: FieldType.number,
        config: {},
        values: answer.map(({ value }) => Number(value![1])),
      },
    ],
  };
}

async function frames(panel: Panel, answers: Answers, theme: GrafanaTheme2): Promise<DataFrame[]> {
  const answered = panel.targets.filter(({ answer }) => answer.length);
  const raw = answered.flatMap((target) =>
    target.format === 'table'
      ? [tableFrame(target, panel.targets.length === 1)]
      : graphFrames(target, answers.step)
  );
  const data = await new Promise<DataFrame[]>((done) =>
    transformDataFrame(panel.transformations ?? [], raw).subscribe(done)
  );
  const shown = applyFieldOverrides({
    data,
    theme,
    fieldConfig: withLowestStep(panel.fieldConfig),
    fieldConfigRegistry: fieldOptions(answers.panels.filter(({ type }) => type !== 'row')),
    replaceVariables: identity,
    timeZone: 'utc',
  });
  cacheFieldDisplayNames(shown);
  return shown;
}

function Graph({ panel, data, range, width, height }: Drawn) {
  if (!data.length) {
    return <Nothing />;
  }
  return (
    <TimeSeries
      frames={data}
      structureRev={1}
      timeRange={range}
      timeZone="utc"
      width={width}
      height={height}
      legend={panel.options.legend}
      options={panel.options}
    />
  );
}

function Stat({ panel, data, range, width, height, theme }: Drawn) {
  const { reduceOptions, graphMode, ...options } = panel.options;
  const [shown] = getFieldDisplayValues({
    data,
    reduceOptions,
    theme,
    fieldConfig: withLowestStep(panel.fieldConfig),
    replaceVariables: identity,
    sparkline: graphMode !== BigValueGraphMode.None,
    timeZone: 'utc',
  });
  if (shown.sparkline) {
    shown.sparkline.timeRange = range;
  }
  return (
    <BigValue
      value={shown.display}
      sparkline={shown.sparkline}
      count={1}
      graphMode={graphMode}
      width={width}
      height={height}
      theme={theme}
      {...options}
    />
  );
}

function Table({ panel, data, range, width, height }: Drawn) {
  if (!data.length) {
    return <Nothing />;
  }
  return (
    <TableNG
      data={data[0]}
      width={width}
      height={height}
      noHeader={!panel.options.showHeader}
      cellHeight={panel.options.cellHeight}
      sortBy={panel.options.sortBy}
      timeRange={range}
      fieldConfig={panel.fieldConfig}
      enableVirtualization={false}
    />
  );
}

function Nothing() {
  return <div style={{ display: 'grid', placeItems: 'center', height: '100%' }}>No data</div>;
}

interface Drawn {
  panel: Panel;
  data: DataFrame[];
  range: TimeRange;
  width: number;
  height: number;
  theme: GrafanaTheme2;
}

const KINDS: Record<string, (drawn: Drawn) => ReactNode> = { timeseries: Graph, stat: Stat, table: Table };

function Heading({ title }: { title: string }) {
  return (
    <div style={{ display: 'flex', alignItems: 'center', gap: GAP, height: '100%', fontWeight: 500 }}>
      <Icon name="angle-down" />
      {title}
    </div>
  );
}

async function draw(answers: Answers): Promise<void> {
  const theme = createTheme({ colors: { mode: answers.dark ? 'dark' : 'light' } });
  // One of them has two names.
  standardTransformersRegistry.setInit(() =>
    [...new Set<any>(Object.values(standardTransformers))].map((one) => ({
      ...one,
      transformation: async () => one,
      editor: () => null,
    }))
  );
  const range: TimeRange = {
    from: dateTime(answers.from),
    to: dateTime(answers.to),
    raw: { from: dateTime(answers.from), to: dateTime(answers.to) },
  };
  const column = (answers.width - 2 * MARGIN - GAP * (COLUMNS - 1)) / COLUMNS;
  const along = (count: number, unit: number) => count * unit + (count - 1) * GAP;
  const placed = await Promise.all(
    answers.panels.map(async (panel) => {
      const { x, y, w, h } = panel.gridPos;
      const width = along(w, column);
      const height = along(h, ROW_HEIGHT);
      const Kind = KINDS[panel.type];
      const data = panel.type === 'row' ? [] : await frames(panel, answers, theme);
      return (
        <div
          key={panel.id}
          data-panel={panel.title}
          style={{ position: 'absolute', left: x * (column + GAP), top: y * (ROW_HEIGHT + GAP), width, height }}
        >
          {panel.type === 'row' ? (
            <Heading title={panel.title} />
          ) : (
            <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
              {(width, height) => <Kind {...{ panel, data, range, width, height, theme }} />}
            </PanelChrome>
          )}
        </div>
      );
    })
  );
  const rows = Math.max(...answers.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const root = createRoot(document.getElementById('dashboard')!);
  const render = (panels: ReactNode) =>
    root.render(
      <ThemeContext.Provider value={theme}>
        <GlobalStyles />
        <div style={{ padding: MARGIN }}>
          <div style={{ position: 'relative', height: along(rows, ROW_HEIGHT) }}>{panels}</div>
        </div>
      </ThemeContext.Provider>
    );
  // Graphs draw their text once, so fonts come first.
  flushSync(() => render(null));
  await Promise.all(FONT_WEIGHTS.map((weight) => document.fonts.load(`${weight} 12px ${theme.typography.fontFamily}`)));
  render(placed);
}

Object.assign(window, { draw });
